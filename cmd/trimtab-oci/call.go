package main

import (
	"slices"
	"strings"
)

// commandLine has the parts of an OCI runtime's command line that trimtab-oci needs. parseCommandLine knows the options
// of runc 1.5 and crun 1.20.
type commandLine struct {
	command            string // create, run, start, ...
	id                 string // id of the container, for create and run
	bundle             string // directory of the bundle
	logFile, logFormat string // values of the options --log and --log-format
}

// createsContainer reports whether the command creates a container from a bundle.
func (c commandLine) createsContainer() bool { return c.command == "create" || c.command == "run" }

// optionsWithValue are the options that have a value. The value is the next argument or follows "=".
var optionsWithValue = []string{
	"root", "log", "log-format", "log-level", "criu", "rootless", "cgroup-manager", // options of all commands
	"bundle", "b", "console-socket", "pidfd-socket", "pid-file", "preserve-fds", "config", "f", // options of create and run
}

// parseCommandLine reads the command line of an OCI runtime.
func parseCommandLine(args []string) commandLine {
	c := commandLine{bundle: "."}
	for i := 0; i < len(args); i++ {
		name, value, isOption, joined := parseOption(args[i])
		switch {
		case !isOption && c.command == "":
			c.command = args[i]
		case !isOption:
			c.id = args[i] // the id is the last argument of the command line
		case !joined && slices.Contains(optionsWithValue, name) && i+1 < len(args):
			i++
			value = args[i]
			fallthrough
		default:
			c.setOption(name, value)
		}
	}
	return c
}

// parseOption splits an argument of the form -name, --name or --name=value. isOption is false if arg has another form.
// joined is true if arg includes the value.
func parseOption(arg string) (name, value string, isOption, joined bool) {
	name = strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-")
	if name == arg || name == "" {
		return "", "", false, false
	}
	name, value, joined = strings.Cut(name, "=")
	return name, value, true, joined
}

// setOption stores the value of an option in c, if trimtab-oci needs this option.
func (c *commandLine) setOption(name, value string) {
	switch name {
	case "bundle", "b":
		c.bundle = value
	case "log":
		c.logFile = value
	case "log-format":
		c.logFormat = value
	}
}
