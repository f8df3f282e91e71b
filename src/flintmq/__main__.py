from flintmq.cli.main import main

main()
