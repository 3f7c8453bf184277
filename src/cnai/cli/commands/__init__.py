"""The verbs, one module each; the module's `verb` is the command."""
