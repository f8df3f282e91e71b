"""The demo: a shop's orders and clicks through a broker, a pipeline and a lake, seen live in a terminal.

    shop, poison               pure: what happens in the shop, and what is wrong with some of it
    figures, sums              pure: what was counted, and whether it adds up
    plots, view, lines         how that looks: one screen for a terminal, plain lines elsewhere
    folder                     the files of a demo: the pipeline's, the customers', data
    broker, producing          a broker in a thread, and the shop's records on their way into it
    watching, working          what comes out of the pipeline; Spark with the pipeline and the lake
    conductor                  the order in which all that begins and ends

Invariant: when a demo is over, however it ended, no process, port or folder of it is left, unless the folder was
asked for.
"""
