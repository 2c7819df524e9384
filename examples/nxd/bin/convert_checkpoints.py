#!/bin/sh
# Read by sh and by python3; both start drover.
''':'
exec "${DROVER:-drover}" convert "$@"
'''
import os, sys
os.execvp("sh", ["sh", __file__, *sys.argv[1:]])
