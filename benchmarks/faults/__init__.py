"""What deaths, and beginning and stopping again and again, cost: time, and what is left behind.

The same under tight limits of the system: descriptors, shared memory, memory, a full disk.
"""
