"""Where the stages meet: each workflow hands the results of one to the next."""
