package real_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trimtab/trimtab/test/real"
)

// builtBinary is the environment variable of a child test process with the agent that its parent has built.
const builtBinary = "TRIMTAB_TEST_BINARY"

// binary builds the agent once per run, with the race detector.
var binary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv(builtBinary); path != "" {
		return path, nil
	}
	return build("-race")
})

// plainBinary builds the released agent, for benchmarks.
var plainBinary = sync.OnceValues(func() (string, error) { return build("-trimpath") })

// buildDir is the directory for built programs, which TestMain makes.
var buildDir string

func build(flag string) (string, error) {
	out := filepath.Join(buildDir, "trimtab"+flag)
	cmd := exec.Command("go", "build", flag, "-buildvcs=false", "-tags", "nri_no_wasm,grpcnotrace", "-o", out, "./cmd/trimtab")
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build trimtab: %w\n%s", err, text)
	}
	return out, nil
}

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if buildDir, err = os.MkdirTemp("", "ttbin"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(buildDir)
		return m.Run()
	}())
}

// trimtab is an agent process for a real containerd.
type trimtab struct {
	t    testing.TB
	dir  string
	path string
	cmd  *exec.Cmd
	out  *lockedBuffer
	web  *http.Client
	sys  string // where sysfs is mounted
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// startTrimtab starts an agent with a configuration and its own sockets and paths, and waits until it is attached.
func startTrimtab(t testing.TB, c *real.Containerd, config string) *trimtab {
	t.Helper()
	a := newTrimtab(t)
	a.configure(c, config)
	a.run()
	a.attached()
	return a
}

// newTrimtab makes an agent's directories without starting it.
func newTrimtab(t testing.TB) *trimtab {
	t.Helper()
	program := binary
	if _, measures := t.(*testing.B); measures {
		program = plainBinary
	}
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "ttag")
	if err != nil {
		t.Fatal(err)
	}
	a := &trimtab{t: t, dir: dir, path: path, out: &lockedBuffer{}, sys: "/sys"}
	a.web = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", a.socket())
	}, DisableKeepAlives: true}}
	t.Cleanup(func() {
		a.kill()
		if strings.Contains(a.out.String(), "DATA RACE") {
			t.Error("the agent has a data race")
		}
		if t.Failed() {
			t.Logf("log of the agent:\n%s", a.out)
		}
		os.RemoveAll(dir)
	})
	return a
}

func (a *trimtab) socket() string { return filepath.Join(a.dir, "s.sock") }
func (a *trimtab) config() string { return filepath.Join(a.dir, "config.yaml") }
func (a *trimtab) state() string  { return filepath.Join(a.dir, "state") }

// text returns a complete configuration: the harness's keys and the given ones.
func (a *trimtab) text(c *real.Containerd, config string) []byte {
	if !strings.Contains(config, "bypass: {") { // agents of other tests use other runtimes below the same cgroup root
		config = fmt.Sprintf("bypass: {cgroupRoot: %s}\n%s", c.CgroupParent(), config)
	}
	return fmt.Appendf(nil, `apiVersion: trimtab.io/v1alpha1
kind: Config
nri: {socket: %s}
paths: {sys: %s, statusSocket: %s, key: %s/key, state: %s}
%s
`, c.NRISocket(), a.sys, a.socket(), a.dir, a.state(), config)
}

// configure replaces the configuration file in one step.
func (a *trimtab) configure(c *real.Containerd, config string) {
	a.t.Helper()
	next := a.config() + ".new"
	if err := errors.Join(os.WriteFile(next, a.text(c, config), 0o600), os.Rename(next, a.config())); err != nil {
		a.t.Fatal(err)
	}
}

func (a *trimtab) run() {
	a.t.Helper()
	a.cmd = exec.Command(a.path, "agent", "--config", a.config())
	a.cmd.Stdout, a.cmd.Stderr = a.out, a.out
	if err := a.cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
}

// kill ends the agent with SIGKILL.
func (a *trimtab) kill() {
	if a.cmd != nil && a.cmd.Process != nil {
		_ = a.cmd.Process.Kill()
		_ = a.cmd.Wait()
		a.cmd = nil
	}
}

// node has the fields of the agent's status that tests read.
type node struct {
	ConfigGen   int    `json:"configGeneration"`
	ConfigError string `json:"configError"`
	Attachments []struct{ State, Runtime string }
	Containers  []struct{ Pod, ID, State string }
	CPUs        struct {
		Grants []struct{ Pod, Container, CPUs string }
	}
}

// explanation has the fields of trimtab explain that tests read.
type explanation struct {
	Pod, Container, Class, Seat, CPUs string
	Values, PodValues                 []struct {
		Field, Value, Channel, Note string
		Applied                     bool
		Why                         struct{ Hook, Source string }
	}
	Problems []struct {
		Key, Value, Reason string
		Warning, Unserved  bool
	}
}

func (a *trimtab) get(path string, into any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent"+path, nil)
	if err != nil {
		return err
	}
	answer, err := a.web.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, body)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

func (a *trimtab) status() (node, error) {
	var n node
	return n, a.get("/v1/status", &n)
}

func (a *trimtab) explain(namespace, pod, container string) []explanation {
	a.t.Helper()
	found, err := a.explained(namespace, pod, container)
	if err != nil {
		a.t.Error(err)
	}
	return found
}

// explained is explain for a container that the agent may not have yet.
func (a *trimtab) explained(namespace, pod, container string) (found []explanation, err error) {
	q := url.Values{"namespace": {namespace}, "pod": {pod}, "container": {container}}
	err = a.get("/v1/explain?"+q.Encode(), &found)
	return found, err
}

// attached waits until the agent is registered and synchronised.
func (a *trimtab) attached() {
	a.t.Helper()
	real.Eventually(a.t, time.Minute, func() error {
		n, err := a.status()
		if err == nil && (len(n.Attachments) != 1 || n.Attachments[0].State != "connected") {
			err = fmt.Errorf("attachments: %+v", n.Attachments)
		}
		return err
	})
}
