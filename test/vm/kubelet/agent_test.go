package kubelet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/trimtab/trimtab/test/vm"
)

const (
	statusSocket = "/run/trimtab/trimtab.sock"
	configFile   = "/etc/trimtab/config.yaml"
)

// trimtab is the agent in a guest.
type trimtab struct {
	m   *vm.Machine
	web *http.Client
}

func newTrimtab(m *vm.Machine) *trimtab {
	return &trimtab{m: m, web: &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return m.Dial(ctx, "unix", statusSocket) },
		DisableKeepAlives: true,
	}}}
}

func (n *node) configureAgent(keys map[string]any) {
	n.t.Helper()
	all := map[string]any{"apiVersion": "trimtab.io/v1alpha1", "kind": "Config"}
	for k, v := range keys {
		all[k] = v
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		n.t.Fatal(err)
	}
	n.m.Put(configFile, 0o600, text)
}

// runAgent starts the agent and waits until it is attached.
func (n *node) runAgent() {
	n.t.Helper()
	n.m.Spawn("trimtab", "/payload/trimtab", "agent", "--config", configFile)
	n.await("agent", func() error {
		s, err := n.a.status()
		if err == nil && (len(s.Attachments) != 1 || s.Attachments[0].State != "connected") {
			err = fmt.Errorf("attachments: %+v", s.Attachments)
		}
		return err
	})
}

// status is what is read of the agent's status.
type status struct {
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
	}
}

// told is what is read of explain.
type told struct {
	Class, Seat, CPUs string
	Facts             []struct{ Fact, Value, From string }
	Problems          []struct{ Key, Value, Reason string }
}

func (a *trimtab) get(path string, into any) error {
	answer, err := a.web.Get("http://agent" + path)
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

func (a *trimtab) status() (status, error) {
	var s status
	err := a.get("/v1/status", &s)
	return s, err
}

func (a *trimtab) explain(namespace, pod, container string) ([]told, error) {
	var found []told
	q := url.Values{"namespace": {namespace}, "pod": {pod}, "container": {container}}
	err := a.get("/v1/explain?"+q.Encode(), &found)
	return found, err
}
