"""The losses inside other libraries' training loops; each module imports its own library and no other.

Import what you need from the module named after the library, such as `sincere.integrations.lightning`.
"""
