package main

import (
	"slices"
	"strings"
)

// call has the parts of an OCI runtime's command line that the wrapper needs. Forms: runc 1.5, crun 1.20.
type call struct {
	command        string // create, run, start, ...
	id             string // id of the container, for create and run
	bundle         string
	log, logFormat string
}

// createsContainer reports whether the command makes a container from a bundle.
func (c call) createsContainer() bool { return c.command == "create" || c.command == "run" }

// optionsWithValue are the options that have a value, before and after the command.
var optionsWithValue = []string{
	"root", "log", "log-format", "log-level", "criu", "rootless", "cgroup-manager", // of all commands
	"bundle", "b", "console-socket", "pidfd-socket", "pid-file", "preserve-fds", "config", "f", // of create and run
}

// parse reads a command line.
func parse(args []string) call {
	c := call{bundle: "."}
	for i := 0; i < len(args); i++ {
		name, value, isOption, joined := option(args[i])
		switch {
		case !isOption && c.command == "":
			c.command = args[i]
		case !isOption:
			c.id = args[i] // the last value counts
		case !joined && slices.Contains(optionsWithValue, name) && i+1 < len(args):
			i++
			value = args[i]
			fallthrough
		default:
			c.note(name, value)
		}
	}
	return c
}

// option reads -name, --name and --name=value.
func option(arg string) (name, value string, is, joined bool) {
	name = strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-")
	if name == arg || name == "" {
		return "", "", false, false
	}
	name, value, joined = strings.Cut(name, "=")
	return name, value, true, joined
}

func (c *call) note(name, value string) {
	switch name {
	case "bundle", "b":
		c.bundle = value
	case "log":
		c.log = value
	case "log-format":
		c.logFormat = value
	}
}
