// Package agent runs Trimtab in a guest, for the suites: its process, its configuration, and its status.
package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/test/vm"
)

const (
	statusSocket = "/run/trimtab/trimtab.sock"
	// ConfigFile is the agent's configuration in a guest.
	ConfigFile = "/etc/trimtab/config.yaml"
	// Program is the path of this checkout's build.
	Program = "/payload/trimtab"
	// AwaitTimeout is how long to wait for a condition.
	AwaitTimeout = 3 * time.Minute
)

// Agent is the agent in a guest.
type Agent struct {
	// Units are the systemd units of the agent; without any it is a plain process.
	Units []string

	m   *vm.Machine
	pid int
	web *http.Client
}

// New returns the agent of a guest without starting it.
func New(m *vm.Machine) *Agent {
	return &Agent{m: m, web: &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return m.Dial(ctx, "unix", statusSocket) },
		// A kept connection could belong to an agent that has been restarted since.
		DisableKeepAlives: true,
	}}}
}

// Configure writes the configuration file. JSON is YAML, too.
func (a *Agent) Configure(keys json.RawMessage) error {
	document := map[string]json.RawMessage{}
	if len(keys) > 0 {
		if err := json.Unmarshal(keys, &document); err != nil {
			return err
		}
	}
	if document == nil { // the keys were null
		document = map[string]json.RawMessage{}
	}
	document["apiVersion"], document["kind"] = json.RawMessage(`"trimtab.io/v1alpha1"`), json.RawMessage(`"Config"`)
	text, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return err
	}
	a.m.Put(ConfigFile, 0o600, text)
	return nil
}

// Spawn starts the agent.
func (a *Agent) Spawn() {
	if len(a.Units) > 0 {
		a.m.Run(append([]string{"systemctl", "start"}, a.Units...)...)
		return
	}
	a.pid = a.m.Spawn("trimtab", Program, "agent", "--config", ConfigFile)
}

// Run starts the agent and waits until it is attached.
func (a *Agent) Run() error {
	a.Spawn()
	return a.AwaitAttached()
}

// Kill ends the agent with SIGKILL.
func (a *Agent) Kill() {
	if n := len(a.Units); n > 0 {
		a.m.Run("systemctl", "kill", "-s", "KILL", a.Units[n-1])
		return
	}
	if a.pid != 0 {
		a.m.Run("kill", "-9", strconv.Itoa(a.pid))
		a.pid = 0
	}
}

// Dump ends the agent with SIGQUIT, which writes the stacks of its goroutines to its log.
func (a *Agent) Dump() {
	if a.pid != 0 {
		a.m.Run("kill", "-QUIT", strconv.Itoa(a.pid))
		a.pid = 0
	}
}

// Status has the fields of the agent's status that tests read.
type Status struct {
	Version     string `json:"version"`
	ConfigGen   int    `json:"configGeneration"`
	ConfigError string `json:"configError"`
	Unapplied   int    // values that are not in force
	Attachments []struct{ State string }
	PodSpecs    []struct {
		Source string
		Up     bool
		Pods   int
		Error  string
	}
	CPUs struct {
		Shared string
		Grants []struct{ Pod, Container, CPUs string }
		Pools  []api.Pool
	}
	Cluster struct {
		Config struct {
			From   string
			Layers []struct{ Name string }
		}
	}
}

// Explanation has the fields of explain that tests read.
type Explanation struct {
	Pod, Container, State, Class, Seat, SeatWhy, CPUs string
	Values, PodValues                                 []struct {
		Field, Value, Channel, Note string
		Applied                     bool
	}
	Facts    []struct{ Fact, Value, From string }
	Problems []struct{ Key, Value, Reason string }
}

// get requests a path of the status socket, and decodes the answer.
func (a *Agent) get(path string, into any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
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
	if err != nil || answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s (%w)", answer.Status, body, err)
	}
	return json.Unmarshal(body, into)
}

// Status reads the status over the status socket.
func (a *Agent) Status() (Status, error) {
	var n Status
	return n, a.get("/v1/status", &n)
}

// Explain reads the decisions for a container, or for each container of a pod.
func (a *Agent) Explain(namespace, pod, container string) ([]Explanation, error) {
	var found []Explanation
	q := url.Values{"namespace": {namespace}, "pod": {pod}, "container": {container}}
	return found, a.get("/v1/explain?"+q.Encode(), &found)
}

// AwaitAttached waits until the agent is registered and synchronised.
func (a *Agent) AwaitAttached() error {
	return Await(func() error {
		n, err := a.Status()
		if err == nil && (len(n.Attachments) != 1 || n.Attachments[0].State != "connected") {
			err = fmt.Errorf("attachments: %+v", n.Attachments)
		}
		return err
	})
}

// Reconfigure writes a new configuration and waits until the agent has applied it.
func (a *Agent) Reconfigure(keys json.RawMessage) error {
	before, err := a.Status()
	if err != nil {
		return err
	}
	if err := a.Configure(keys); err != nil {
		return err
	}
	return Await(func() error {
		n, err := a.Status()
		switch {
		case err != nil:
			return err
		case n.ConfigError != "":
			return errors.New(n.ConfigError)
		case n.ConfigGen <= before.ConfigGen:
			return fmt.Errorf("the configuration is still number %d", n.ConfigGen)
		}
		return nil
	})
}

// Await calls check until it returns no error, and returns its last error when AwaitTimeout ends.
func Await(check func() error) error {
	deadline := time.Now().Add(AwaitTimeout)
	for {
		err := check()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(100 * time.Millisecond) // the interval of a poll, which ends when the condition holds
	}
}
