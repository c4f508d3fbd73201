package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/report/api"
)

// Result is the outcome of a check.
type Result string

// The outcomes of a check.
const (
	OK      Result = "ok"
	Problem Result = "problem"
	Unknown Result = "could not tell"
)

// Check is the result of one check of the node.
type Check struct {
	Name   string `json:"check"`
	Result Result `json:"result"`
	Found  string `json:"found"`        // what the check found
	Why    string `json:"why"`          // why the check matters
	Do     string `json:"do,omitempty"` // what the user can do about a problem
}

// Report has the results of all checks, and how many were not ok.
type Report struct {
	Problems int     `json:"problems"`
	Unknown  int     `json:"couldNotTell"`
	Checks   []Check `json:"checks"`
}

// Options configure the checks.
type Options struct {
	// HostRoot is where the node's root directory is mounted: "/" on the node.
	HostRoot string
	// Endpoint is the runtime's CRI socket. "" means cri.endpoint of the configuration, or with attach: nri the
	// default sockets of containerd and CRI-O.
	Endpoint string
	// KubeletRoot is the kubelet's directory, as a path on the node.
	KubeletRoot string
	// ConfigFile is the path of the agent's configuration on the node.
	ConfigFile string
	// Ask asks the running agent at a status socket for its state.
	Ask func(ctx context.Context, socket string) (api.Node, error)
	// Specs asks the sources of pod specs; nil if Run must not ask them.
	Specs func(ctx context.Context, c config.Config) []api.SpecSource
	// Grants asks the kubelet which devices and CPUs it has assigned; nil if Run must not ask it.
	Grants func(ctx context.Context, c config.PodSpec) api.SpecSource

	// owner returns a file's owner. It is a field because tests cannot chown.
	owner func(fs.FileInfo) (uid, gid int)
}

// host returns the node's file tree.
func (o Options) host() host { return host{root: o.HostRoot, owner: o.owner} }

// Run runs all checks and counts their results.
func Run(ctx context.Context, o Options) Report {
	if o.owner == nil {
		o.owner = owner
	}
	r := Report{Checks: runChecks(ctx, o)}
	for _, c := range r.Checks {
		switch c.Result {
		case Problem:
			r.Problems++
		case Unknown:
			r.Unknown++
		}
	}
	return r
}

// withResult returns the check with a result, an advice, and what was found.
func (c Check) withResult(r Result, do, format string, args ...any) Check {
	c.Result, c.Do, c.Found = r, do, fmt.Sprintf(format, args...)
	return c
}

// ok returns the check with the result OK, and with what was found.
func (c Check) ok(format string, args ...any) Check { return c.withResult(OK, "", format, args...) }

// problem returns the check with the result Problem, an advice, and what was found.
func (c Check) problem(do, format string, args ...any) Check {
	return c.withResult(Problem, do, format, args...)
}

// unknown returns the check with the result Unknown, an advice, and what was found.
func (c Check) unknown(do, format string, args ...any) Check {
	return c.withResult(Unknown, do, format, args...)
}

// rootAdvice is the advice if a permission is missing.
const rootAdvice = "run trimtab doctor as root"

// unreadable returns the check with the result for a file or socket that cannot be read.
func (c Check) unreadable(what string, err error) Check {
	do := "correct the cause of the error, then run trimtab doctor again"
	if errors.Is(err, fs.ErrPermission) {
		do = rootAdvice
	}
	return c.unknown(do, "%s: %s", what, reason(err))
}

// isMissing reports whether an error means that a file, or a directory above it, does not exist.
func isMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// reason returns the text of an error without the path, because the finding of a check already has the path.
func reason(err error) string {
	var errno syscall.Errno
	var at *fs.PathError
	switch {
	case errors.As(err, &errno):
		return errno.Error()
	case errors.As(err, &at):
		return at.Err.Error()
	}
	return err.Error()
}

func join(list []string) string { return strings.Join(list, ", ") }

// joinTexts joins the texts of the elements of a list with commas.
func joinTexts[T any](list []T, text func(T) string) string {
	var texts []string
	for _, element := range list {
		texts = append(texts, text(element))
	}
	return join(texts)
}
