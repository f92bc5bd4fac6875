#!/usr/bin/env bash
# What the guest runs besides the modules: nothing yet. usage: programs.sh ROOT
