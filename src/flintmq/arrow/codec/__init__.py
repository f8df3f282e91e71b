"""Batches of the log as Arrow columns, and Arrow columns as batches of the log, vectorised.

    decode     batches → a record batch of Arrow, in the columns of Spark's Kafka source
    encode     rows of Arrow → batches as a producer sends them

Pure, and knows neither Spark nor sockets nor files. Needs numpy and pyarrow, which the rest of FlintMQ does not: only
who asks for columns imports this.
"""
