package agent

import (
	"context"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/recording"
	"github.com/trimtab/trimtab/internal/topology"
)

// Record writes every event from now on to w, until ctx ends. It calls flush when no
// more events wait.
func (s source) Record(ctx context.Context, withoutEnv bool, w io.Writer, flush func() error) error {
	sub, now := conductor.Listen(s.a.conductor)
	defer sub.Close()
	return sub.Write(ctx, w, recording.Header{Version: s.a.opt.Version, Time: time.Now(), WithoutEnv: withoutEnv, Node: now}, flush)
}

// described is the node and the configuration in force, for a recording.
func (s *settings) described() recording.Node {
	s.mu.Lock()
	c, m, released := s.config, s.machine, s.released
	s.mu.Unlock()
	asked := &noting{Node: s.node, findings: map[string]lifecycle.Finding{}, devices: map[string]lifecycle.Device{}}
	_, _ = c.Hooks.Hooks(asked) // of a configuration in force
	for _, h := range hook.Catalogue() {
		for _, features := range h.Kernel {
			for f := range strings.SplitSeq(features, "|") {
				asked.Probe(f)
			}
		}
	}
	host := s.node.Host()
	maps.Copy(asked.devices, host.Devices)
	host.Devices, host.HookFiles = asked.devices, asked.hookFiles
	return recording.Node{
		Config: recordedConfig(c), Machine: recording.LayoutOf(m), Released: released, Unified: s.node.Unified(), Host: host,
		Findings: asked.findings, Namespaces: s.node.namespaces.Labels(),
	}
}

// noting is a node that notes the answers of its probes, and makes nothing.
type noting struct {
	hook.Node

	findings map[string]lifecycle.Finding
	devices  map[string]lifecycle.Device
	// hookFiles are those of the hook that reads them.
	hookFiles []lifecycle.HookFile
}

func (n *noting) Device(path string) (lifecycle.Device, bool) {
	d, found := n.Node.Device(path)
	if found {
		n.devices[path] = d
	}
	return d, found
}

func (n *noting) Probe(feature string) lifecycle.Finding {
	found, known := n.findings[feature]
	if !known {
		found = n.Node.Probe(feature)
		n.findings[feature] = found
	}
	return found
}

func (n *noting) HookFiles(directories []string) []lifecycle.HookFile {
	n.hookFiles = n.Node.HookFiles(directories)
	return n.hookFiles
}

func (*noting) MakeShared(string) error { return nil }

// describedNode is the node of a recording, for hooks.
type describedNode struct{ *recording.Node }

func (n describedNode) Probe(feature string) lifecycle.Finding {
	if f, known := n.Findings[feature]; known {
		return f
	}
	return lifecycle.Finding{Why: "the recording has no such fact"}
}

func (n describedNode) Host() lifecycle.Host { return n.Node.Host }
func (n describedNode) Unified() bool        { return n.Node.Unified }
func (n describedNode) Device(path string) (lifecycle.Device, bool) {
	d, found := n.Node.Host.Devices[path]
	return d, found
}
func (n describedNode) HookFiles([]string) []lifecycle.HookFile { return n.Node.Host.HookFiles }
func (describedNode) MakeShared(string) error                   { return nil }

// Replay decides the events of a recording again, under a configuration or, if that is
// nil, the recorded one. It does no I/O except by the reader.
func Replay(in io.Reader, another *config.Config) (recording.Report, error) {
	report, err := recording.Replay(in, recording.Options{Another: another != nil, Policy: func(n *recording.Node, m *topology.Machine) (engine.Policy, error) {
		var c config.Config
		if another != nil {
			c = *another
		} else {
			var err error
			if c, err = config.Parse("the recording's configuration", []byte(n.Config)); err != nil {
				return engine.Policy{}, fmt.Errorf("replay: %w", err)
			}
		}
		p, err := policyFor(c, m, describedNode{n}, n.Namespaces)
		if n.Released {
			p.Hooks, p.Place, p.Strict, p.Fatal = nil, false, false, nil
		}
		return p, err
	}})
	report.Sort()
	return report, err
}

// recordedConfig prints a configuration without the file that it was read from besides its own:
// the machine that plays the recording does not have it.
func recordedConfig(c config.Config) string {
	c.Placement.PolicyFile = ""
	return string(config.Print(c))
}
