"""SASL authentication: mechanisms as state machines, credentials, and the exchange of one connection.

mechanism                   what a mechanism is, for those here and for plug-ins
plain, scram, oauthbearer/  the mechanisms
plain_users, scram_users    credentials: JAAS settings and users file; the metadata store
exchange                    the states of one connection, as Kafka's broker has them
authenticator               the service: mechanisms and credentials of each listener
plugins                     mechanisms from entry points
"""
