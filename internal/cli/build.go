package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Build describes how a program was built.
type Build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"time,omitempty"`     // time of the commit
	Modified bool   `json:"modified,omitempty"` // built from files that differ from the commit
	Go       string `json:"go"`                 // the version of Go
	Platform string `json:"platform"`           // such as linux/amd64
}

// ThisBuild returns how the running program was built, as the Go toolchain recorded it.
func ThisBuild() Build {
	b := Build{Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// Line formats the build of a program as one line.
func (b Build) Line(program string) string {
	s := program + " " + b.Version
	if b.Commit != "" {
		s += " commit " + b.Commit
	}
	if b.Modified {
		s += " (modified)"
	}
	return fmt.Sprintf("%s %s %s", s, b.Go, b.Platform)
}
