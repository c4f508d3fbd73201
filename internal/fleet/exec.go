package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"
)

// Program is the name of the agent's program. In the agent's image, the program is in PATH.
const Program = "trimtab"

// Streams are the standard streams of a program in a pod. Nil streams are not opened.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	// Sizes are the sizes of the terminal Out; nil if Out is not a terminal. If Out is a terminal, the program's
	// standard error output also goes to Out.
	Sizes remotecommand.TerminalSizeQueue
}

// ExitError is the error of a program that ended with an exit code other than 0.
type ExitError struct {
	Code int
	// Message is the program's standard error output, if the caller read it.
	Message string
}

// Error returns the program's message.
func (e *ExitError) Error() string {
	if e.Message != "" {
		return e.Message
	}
	return fmt.Sprintf("the command ended with exit code %d", e.Code)
}

// Run runs the agent's program with arguments in the agent's pod, until the program or ctx ends. If the program fails,
// the error is an *ExitError.
func (c *Cluster) Run(ctx context.Context, a *Agent, args []string, s Streams) error {
	if a.WhyDown != "" {
		return &UnreachableError{Reason: a.WhyDown}
	}
	target, err := c.execURL(a, args, s)
	if err != nil {
		return err
	}
	// Try a WebSocket first, and then SPDY, because API servers and proxies before Kubernetes 1.30 support only SPDY.
	first, err := remotecommand.NewWebSocketExecutor(c.config, http.MethodGet, target.String())
	if err != nil {
		return fmt.Errorf("exec in pod %s: %w", a.Pod, err)
	}
	second, err := remotecommand.NewSPDYExecutor(c.config, http.MethodPost, target)
	if err != nil {
		return fmt.Errorf("exec in pod %s: %w", a.Pod, err)
	}
	both, err := remotecommand.NewFallbackExecutor(first, second, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return fmt.Errorf("exec in pod %s: %w", a.Pod, err)
	}
	err = both.StreamWithContext(ctx, remotecommand.StreamOptions{
		Stdin: s.In, Stdout: s.Out, Stderr: s.stderr(), Tty: s.Sizes != nil, TerminalSizeQueue: s.Sizes,
	})
	return c.execError(ctx, a, err)
}

// stderr returns the writer for standard error output. It returns nil if Out is a terminal, because a terminal has only
// one output.
func (s Streams) stderr() io.Writer {
	if s.Sizes != nil {
		return nil
	}
	return s.Err
}

// execURL returns the URL of an exec request.
func (c *Cluster) execURL(a *Agent, args []string, s Streams) (*url.URL, error) {
	base, _, err := rest.DefaultServerUrlFor(c.config)
	if err != nil {
		return nil, fmt.Errorf("read the API server's address %s: %w", c.config.Host, err)
	}
	u := base.JoinPath("api/v1/namespaces", a.Namespace, "pods", a.Pod, "exec")
	q := url.Values{"container": {Container}, "command": append([]string{Program}, args...)}
	for name, on := range map[string]bool{"stdin": s.In != nil, "stdout": s.Out != nil, "stderr": s.stderr() != nil, "tty": s.Sizes != nil} {
		if on {
			q.Set(name, "true")
		}
	}
	u.RawQuery = q.Encode()
	return u, nil
}

// execError converts the error of an exec request into an error that names the pod or the missing permission.
func (c *Cluster) execError(ctx context.Context, a *Agent, err error) error {
	var exit exec.ExitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &exit) && exit.Exited():
		return &ExitError{Code: exit.ExitStatus()}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &UnreachableError{Reason: fmt.Sprintf("pod %s/%s did not answer in time (--timeout)", a.Namespace, a.Pod)}
	case ctx.Err() != nil:
		return ctx.Err()
	case apierrors.IsForbidden(err) || strings.Contains(err.Error(), "forbidden"):
		// If the API server refuses the upgrade of the connection, only the text of the error says so, not its type.
		return &ForbiddenError{Verb: "create", Resource: "pods/exec", Namespace: a.Namespace, Err: err}
	}
	return &UnreachableError{Reason: fmt.Sprintf("cannot run %s in pod %s/%s", Program, a.Namespace, a.Pod), Err: err}
}

// Output runs the agent's program and returns its standard output, even after an error. An *ExitError contains the
// standard error output.
func (c *Cluster) Output(ctx context.Context, a *Agent, in []byte, args ...string) ([]byte, error) {
	var out, words bytes.Buffer
	s := Streams{Out: &out, Err: &words}
	if in != nil {
		s.In = bytes.NewReader(in)
	}
	err := c.Run(ctx, a, args, s)
	var exit *ExitError
	if errors.As(err, &exit) {
		exit.Message = strings.TrimPrefix(strings.TrimSpace(words.String()), Program+": ")
	}
	return out.Bytes(), err
}
