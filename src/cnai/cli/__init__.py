"""The command `ai-cli`: parses, calls one flow, prints.

Words of the user come in, records of the flows are drawn on the terminal or as one JSON object,
and errors become an exit code. It does no work itself, and a verb's module is imported only when
it runs.
"""
