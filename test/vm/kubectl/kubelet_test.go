package kubectl

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// kubelet serves pods/exec for a node: it runs the agent's program on this host, with the node's status socket.
type kubelet struct {
	program string
	env     []string
}

// serve starts a kubelet and returns its port on 127.0.0.1.
func (k *kubelet) serve(t *testing.T) int {
	t.Helper()
	s := httptest.NewTLSServer(k) // the API server has no authority for kubelets, and trusts any certificate
	t.Cleanup(s.Close)
	return s.Listener.Addr().(*net.TCPAddr).Port
}

// ServeHTTP serves /exec/NAMESPACE/POD/CONTAINER?command=...
func (k *kubelet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(path) != 4 || path[0] != "exec" {
		http.NotFound(w, r)
		return
	}
	o, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeExec(w, r, k, path[2], "", path[3], r.URL.Query()["command"], o, time.Hour, 30*time.Second,
		[]string{"v4.channel.k8s.io"})
}

// ExecInContainer runs the agent's program, and refuses any other.
func (k *kubelet) ExecInContainer(ctx context.Context, _, _, container string, args []string, in io.Reader, out, words io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	if container != "trimtab" || args[0] != "trimtab" {
		_, _ = io.WriteString(words, "exec: no such file\n")
		return utilexec.CodeExitError{Err: exec.ErrNotFound, Code: 127}
	}
	cmd := exec.CommandContext(ctx, k.program, args[1:]...)
	cmd.Env = k.env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, words
	if in == nil {
		cmd.Stdin = bytes.NewReader(nil)
	}
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return utilexec.CodeExitError{Err: err, Code: exit.ExitCode()}
	}
	return err
}
