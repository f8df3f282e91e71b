"""A session of Spark that stays between commands: a Spark Connect server for this user on this machine.

flintmq spark up          starts the server (`server`), which keeps its state in a directory (`state`)
attach(note)              a command's way to its session (`client`), if it is fit for the command (`fingerprint`)
"""
