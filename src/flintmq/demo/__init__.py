"""The demo: a shop's orders and clicks through a broker, a pipeline and a lake, seen live in a terminal.

    shop         pure: what happens in the shop, what is wrong with some of it, and which clicks become orders
    metrics      pure: what was counted, and whether it adds up
    view         how that looks: one screen for a terminal, plain lines elsewhere
    directory    the files of a demo: the pipeline's, the customers', data
    broker       a broker in a thread
    clients      the shop's records on their way into it, and what comes out of the pipeline
    spark        Spark with the pipeline and the lake
    conductor    the order in which all that begins and ends

Invariant: when a demo is over, however it ended, no process, port or directory of it is left, unless the directory
was asked for.
"""
