"""What a user can set: one small record for each concern, composed by the verbs.

Flags, help texts, completion, configuration files and Python keywords all follow from these records.
"""
