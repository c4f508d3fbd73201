package hooks_test

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
	"strings"
	"time"

	"github.com/trimtab/trimtab/test/vm"
)

const (
	statusSocket = "/run/trimtab/trimtab.sock"
	configFile   = "/etc/trimtab/config.yaml"
	patience     = 60 * time.Second
)

// trimtab is the agent in a guest.
type trimtab struct {
	m   *vm.Machine
	pid int
	web *http.Client
}

func newTrimtab(m *vm.Machine) *trimtab {
	return &trimtab{m: m, web: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return m.Dial(ctx, "unix", statusSocket) },
		// A kept connection would be of an agent that has since been restarted.
		DisableKeepAlives: true,
	}}}
}

// configure writes the configuration file. JSON is YAML, too.
func (a *trimtab) configure(keys json.RawMessage) error {
	document := map[string]json.RawMessage{}
	if len(keys) > 0 {
		if err := json.Unmarshal(keys, &document); err != nil {
			return err
		}
	}
	document["apiVersion"], document["kind"] = json.RawMessage(`"trimtab.io/v1alpha1"`), json.RawMessage(`"Config"`)
	text, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return err
	}
	a.m.Put(configFile, 0o600, text)
	return nil
}

// run starts the agent and waits until it is attached.
func (a *trimtab) run() error {
	a.pid = a.m.Spawn("trimtab", "/payload/trimtab", "agent", "--config", configFile)
	return a.attached()
}

// kill ends the agent without a chance to tidy up.
func (a *trimtab) kill() {
	if a.pid != 0 {
		a.m.Run("kill", "-9", strconv.Itoa(a.pid))
		a.pid = 0
	}
}

// node is what is read of the agent's status.
type node struct {
	ConfigGen   int    `json:"configGeneration"`
	ConfigError string `json:"configError"`
	Attachments []struct{ State string }
	CPUs        struct {
		Grants []struct{ Pod, Container, CPUs string }
	}
}

// told is what is read of explain.
type told struct {
	Pod, Container, Class, Seat, CPUs string
	Values, PodValues                 []struct {
		Field, Value, Channel, Note string
		Applied                     bool
	}
	Problems []struct{ Key, Value, Reason string }
}

func (a *trimtab) get(path string, into any) error {
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

func (a *trimtab) status() (node, error) {
	var n node
	return n, a.get("/v1/status", &n)
}

func (a *trimtab) explain(namespace, pod, container string) ([]told, error) {
	var found []told
	q := url.Values{"namespace": {namespace}, "pod": {pod}, "container": {container}}
	return found, a.get("/v1/explain?"+q.Encode(), &found)
}

// attached waits until the agent is registered and synchronised.
func (a *trimtab) attached() error {
	return await(func() error {
		n, err := a.status()
		if err == nil && (len(n.Attachments) != 1 || n.Attachments[0].State != "connected") {
			err = fmt.Errorf("attachments: %+v", n.Attachments)
		}
		return err
	})
}

// reconfigure gives the agent a new configuration and waits until it has it.
func (a *trimtab) reconfigure(keys json.RawMessage) error {
	before, err := a.status()
	if err != nil {
		return err
	}
	if err := a.configure(keys); err != nil {
		return err
	}
	return await(func() error {
		n, err := a.status()
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

// await asks until there is no error, and returns the last one when patience ends.
func await(look func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := look()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(100 * time.Millisecond) // the pace of asking a guest; what is waited for is the condition
	}
}

// lines makes one error of several sentences.
func lines(notes []string) error {
	if len(notes) == 0 {
		return nil
	}
	return errors.New(strings.Join(notes, "\n"))
}
