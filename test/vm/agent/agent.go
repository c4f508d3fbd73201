// Package agent runs the Trimtab agent in a virtual machine, for tests. It starts and ends the agent, writes the
// agent's configuration, and reads the agent's status.
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
	// statusSocket is the path of the agent's status socket in a virtual machine.
	statusSocket = "/run/trimtab/trimtab.sock"
	// ConfigFile is the path of the agent's configuration file in a virtual machine.
	ConfigFile = "/etc/trimtab/config.yaml"
	// Program is the path of the tested trimtab program in a virtual machine.
	Program = "/payload/trimtab"
	// AwaitTimeout is how long Await waits for a condition.
	AwaitTimeout = 3 * time.Minute
)

// Agent is the agent in a virtual machine.
type Agent struct {
	// Units are the systemd units of the agent, in the order of their start. Without units, the agent is a plain
	// process.
	Units []string

	m   *vm.Machine
	pid int          // the process id of the agent if it is a plain process; 0 if it does not run
	web *http.Client // connects to the agent's status socket
}

// New returns the agent of a virtual machine. It does not start the agent.
func New(m *vm.Machine) *Agent {
	return &Agent{m: m, web: &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return m.Dial(ctx, "unix", statusSocket) },
		// Open a new connection for each request, because after a restart of the agent an old connection does not work.
		DisableKeepAlives: true,
	}}}
}

// Configure writes the configuration file with these keys. The file is JSON, which is also valid YAML.
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

// Kill ends the agent with SIGKILL. If the agent has several units, Kill kills only the processes of the last unit.
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

// Dump ends the agent with SIGQUIT, so that the agent writes the stacks of its goroutines to its log. Dump does nothing
// if the agent is a systemd unit.
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
		Up     bool // the source answers
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
			From   string // "API server", or the copy on the node
			Layers []struct{ Name string }
		}
	}
}

// Explanation has the fields of explain that tests read. Seat is "exclusive" if the container owns CPUs, and otherwise
// the name of its pool. SeatWhy is the reason for Seat.
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
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("request %s of the agent: %s: %s", path, answer.Status, body)
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
			err = fmt.Errorf("the agent is not attached; its attachments are %+v", n.Attachments)
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
			return fmt.Errorf("the agent still uses the configuration with the number %d", n.ConfigGen)
		}
		return nil
	})
}

// Await calls check until check returns no error. When AwaitTimeout has passed, Await returns the last error of check.
func Await(check func() error) error {
	deadline := time.Now().Add(AwaitTimeout)
	for {
		err := check()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(100 * time.Millisecond) // a poll: the loop ends as soon as check succeeds
	}
}
