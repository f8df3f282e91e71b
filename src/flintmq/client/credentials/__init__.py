"""What a client connects with: the list of settings, logins and tokens.

settings          pure: Kafka's client settings for security, as a list
bearer_tokens     tokens of OAUTHBEARER: from the settings, a file or a token endpoint
login             what one authentication begins with
"""
