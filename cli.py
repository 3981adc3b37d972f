from perfsim.cli.main import run

run()
