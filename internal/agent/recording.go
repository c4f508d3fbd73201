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

// Record writes a recording to w: all events from now on, until ctx ends. It calls flush when it has written all
// waiting events.
func (s source) Record(ctx context.Context, withoutEnv bool, w io.Writer, flush func() error) error {
	sub, now := conductor.Listen(s.a.conductor)
	defer sub.Close()
	return sub.Write(ctx, w, recording.Header{Version: s.a.opt.Version, Time: time.Now(), WithoutEnv: withoutEnv, Node: now}, flush)
}

// recordedNode returns the node and the configuration in force, for a recording.
func (s *settings) recordedNode() recording.Node {
	s.mu.Lock()
	c, m, released := s.config, s.machine, !s.releasedAt.IsZero()
	s.mu.Unlock()
	asked := &recordingNode{Node: s.node, findings: map[string]lifecycle.Finding{}, devices: map[string]lifecycle.Device{}}
	_, _ = c.Hooks.Hooks(asked) // the hooks probe features and find devices; asked stores the results
	for _, h := range hook.Catalogue() {
		for _, features := range h.KernelFeatures {
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

// recordingNode wraps a node. It stores the results of probes and the devices that hooks request, and makes no
// directories.
type recordingNode struct {
	hook.Node

	findings map[string]lifecycle.Finding // the results of probes, by feature
	devices  map[string]lifecycle.Device  // the devices that hooks requested, by path
	// hookFiles are the files of OCI hooks that were read.
	hookFiles []lifecycle.HookFile
}

func (n *recordingNode) Device(path string) (lifecycle.Device, bool) {
	d, found := n.Node.Device(path)
	if found {
		n.devices[path] = d
	}
	return d, found
}

func (n *recordingNode) Probe(feature string) lifecycle.Finding {
	found, known := n.findings[feature]
	if !known {
		found = n.Node.Probe(feature)
		n.findings[feature] = found
	}
	return found
}

func (n *recordingNode) HookFiles(directories []string) []lifecycle.HookFile {
	n.hookFiles = n.Node.HookFiles(directories)
	return n.hookFiles
}

func (*recordingNode) MakeSharedDir(string) error { return nil }

// replayNode implements hook.Node for the node of a recording.
type replayNode struct{ *recording.Node }

func (n replayNode) Probe(feature string) lifecycle.Finding {
	if f, known := n.Findings[feature]; known {
		return f
	}
	return lifecycle.Finding{Why: "the recording does not have the result of this probe"}
}

func (n replayNode) Host() lifecycle.Host { return n.Node.Host }
func (n replayNode) Unified() bool        { return n.Node.Unified }
func (n replayNode) Device(path string) (lifecycle.Device, bool) {
	d, found := n.Node.Host.Devices[path]
	return d, found
}
func (n replayNode) HookFiles([]string) []lifecycle.HookFile { return n.Node.Host.HookFiles }
func (replayNode) MakeSharedDir(string) error                { return nil }

// Replay decides the events of a recording again and compares the decisions with the recorded ones. It uses the
// configuration another, or the recorded configuration if another is nil. It reads only the recording, and writes
// nothing.
func Replay(in io.Reader, another *config.Config) (recording.Report, error) {
	recorded := func(n *recording.Node, m *topology.Machine) (engine.Policy, error) {
		c, err := config.Parse("the recording's configuration", []byte(n.Config))
		if err != nil {
			return engine.Policy{}, fmt.Errorf("replay: %w", err)
		}
		return recordedPolicy(c, n, m)
	}
	o := recording.Options{Policy: recorded}
	if another != nil {
		o = recording.Options{Recorded: recorded, Policy: func(n *recording.Node, m *topology.Machine) (engine.Policy, error) {
			return recordedPolicy(*another, n, m)
		}}
	}
	report, err := recording.Replay(in, o)
	report.Sort()
	return report, err
}

// recordedPolicy makes the policy of a configuration for a recorded node. If the node was recorded after a release, the
// policy decides nothing.
func recordedPolicy(c config.Config, n *recording.Node, m *topology.Machine) (engine.Policy, error) {
	p, err := policyFor(c, m, replayNode{n}, n.Namespaces)
	if n.Released {
		p.Hooks, p.PlacementOn, p.Strict, p.FatalHooks = nil, false, false, nil
	}
	return p, err
}

// recordedConfig prints a configuration without its references to other files, which the machine of a replay does not
// have.
func recordedConfig(c config.Config) string {
	c.Placement.PolicyFile = ""
	return string(config.Print(c))
}
