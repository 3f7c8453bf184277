"""The only place where rooms meet: one flow a verb, about a page each.

A spec and a listener go in, typed results come out; what happens in between is a call of one room
after the other, with records of `core` handed from each to the next. A flow never computes anything
that a room could, and never prints.
"""
