package main

import (
	"strings"
	"testing"
)

// TestParse has command lines as containerd's shim (go-runc 1.1), Docker, crun and users write them.
func TestParse(t *testing.T) {
	for line, want := range map[string]commandLine{
		"--root /run/runc/k8s.io --log /b/log.json --log-format json --systemd-cgroup create --bundle /b --pid-file /b/init.pid c1": {"create", "c1", "/b", "/b/log.json", "json"},
		"--root /r create --bundle=/b --console-socket /s --no-pivot c1":                                                            {"create", "c1", "/b", "", ""},
		"--cgroup-manager systemd --log-level debug run -b /b -d c1":                                                                {"run", "c1", "/b", "", ""},
		"run c1":                      {"run", "c1", ".", "", ""},
		"-log /l create -bundle /b c": {"create", "c", "/b", "/l", ""},
		"--root /create start c1":     {"start", "c1", ".", "", ""},
		"--debug state c1":            {"state", "c1", ".", "", ""},
		"--version":                   {"", "", ".", "", ""},
		"":                            {"", "", ".", "", ""},
		"create --bundle":             {"create", "", "", "", ""},
		"- create":                    {"-", "create", ".", "", ""},
	} {
		if got := parseCommandLine(strings.Fields(line)); got != want {
			t.Errorf("%s: %+v, want %+v", line, got, want)
		}
	}
}

// FuzzParse: no command line makes the wrapper panic.
func FuzzParse(f *testing.F) {
	f.Add("--log /l\ncreate\n--bundle\n/b\nc1")
	f.Fuzz(func(t *testing.T, lines string) {
		args := strings.Split(lines, "\n")
		if c := parseCommandLine(args); c.createsContainer() && !strings.Contains(lines, c.command) {
			t.Errorf("%q is %+v", args, c)
		}
	})
}
