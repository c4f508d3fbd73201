package conformance

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"google.golang.org/grpc"

	"github.com/trimtab/trimtab/internal/agent"
	"github.com/trimtab/trimtab/internal/agent/simulated"
	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/parity"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/cri"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

// Player plays scenarios through one attachment.
type Player struct {
	Attachment parity.Attachment
	// Connector makes the Connector of one play; nil if the agent is an NRI plugin.
	Connector func() sim.Connector
	// LimitSteps are the steps of scenarios in which a known limit of the attachment has an effect.
	LimitSteps []LimitStep
}

// movesInterfaces reports whether containers get the network interfaces that the agent decides.
func (p Player) movesInterfaces() bool {
	way, _ := p.Attachment.DeliveryOf(lifecycle.NetDevice, lifecycle.OfContainer)
	return way.BeforeStart()
}

// LimitStep is a step of a scenario in which a known limit of an attachment has an effect: a request fails, or the
// state of a container differs from the engine's decision.
type LimitStep struct {
	Limit                  parity.Limit
	Scenario, Step, Cgroup string // the names of scenario and step; the cgroup version, "" for both
	// ErrorText is a part of the error that the kubelet's request returns; "" if the request succeeds.
	ErrorText string
	// DifferingContainer is a container whose state differs from the engine's decision after this step; "" for none.
	DifferingContainer scenario.Ref
}

// Players returns one player for each attachment. Add a player for each new attachment.
func Players() []Player {
	return []Player{
		{Attachment: parity.ByName("nri")},
		{
			Attachment: parity.ByName("bypass"), Connector: func() sim.Connector { return &criConnector{attach: "bypass"} },
			LimitSteps: []LimitStep{
				{Limit: parity.RefusedUpdates, Scenario: "koordinator-batch", Step: "the kubelet asks for other limits, and the batch limits stay", Cgroup: "v1", ErrorText: "invalid argument"},
				{Limit: parity.RefusedUpdates, Scenario: "rubik-preemptable", Step: "the kubelet resizes the container below its burst", ErrorText: "invalid argument", DifferingContainer: "prod/off/a"},
			},
		},
		{Attachment: parity.ByName("cri"), Connector: func() sim.Connector { return &criConnector{attach: "cri"} }},
		{
			Attachment: parity.ByName("hooks"), Connector: func() sim.Connector { return &criConnector{attach: "hooks"} },
			LimitSteps: []LimitStep{{Limit: parity.UnchangedUpdate, Scenario: "normalization", Step: "and back", DifferingContainer: "default/none/a"}},
		},
	}
}

// NewAgent makes the agent of a play.
func NewAgent(o sim.AgentOptions) (sim.Agent, error) {
	options := simulated.Options(o)
	options.Proc = filepath.Join(filepath.Dir(o.Config.Paths.Key), "no-proc") // /proc of this host lacks the fake kernel's processes
	options.PollInterval, options.FreeMemory = 10*time.Millisecond, func() {}
	if kernel, fake := o.Tree.FS.(*kernel.Cgroups); fake {
		options.Watch = func() (cgroup.Watcher, error) { return Watch(kernel), nil }
	}
	return agent.New(options)
}

// criConnector connects an agent and a kubelet to the embedded runtime's CRI. The agent is a proxy between the kubelet
// and the runtime (cri), a second client of the runtime (bypass), or the hook server of a runtime proxy (hooks).
type criConnector struct {
	attach string // the value of the configuration key attach: cri, bypass or hooks
	dir    string // the directory of the sockets

	comparer      *requestComparer // compares the requests that are sent and received; nil if the test does not compare
	proxyRequests *storedRequests  // the requests that the proxy stores, also during a restart of the runtime

	criServer *cri.Server
	kubelet   *Kubelet
}

// runtimeSocket returns the path of the runtime's CRI socket.
func (s *criConnector) runtimeSocket() string { return filepath.Join(s.dir, "runtime.sock") }

// proxySocket returns the path of the socket of the agent's CRI proxy.
func (s *criConnector) proxySocket() string { return filepath.Join(s.dir, "proxy.sock") }

// hooksSocket returns the path of the socket at which the agent is a hook server.
func (s *criConnector) hooksSocket() string { return filepath.Join(s.dir, "hooks.sock") }

// Configure sets the sockets to which the agent attaches.
func (s *criConnector) Configure(c *config.Config, dir string) {
	s.dir = dir
	c.Attach = s.attach
	c.CRI.Endpoint, c.CRI.ImageEndpoint, c.CRI.Socket = "unix://"+s.runtimeSocket(), "", s.proxySocket()
	c.Bypass.CgroupRoot = "/"
	if s.attach == "hooks" {
		c.FailurePolicy.Agent = "fail" // hookProxy also has the failure policy Fail
		c.HookServers.Socket, c.HookServers.Register = s.hooksSocket(), filepath.Join(dir, "hookserver.d", "trimtab.json")
	}
	c.PodSpec.Wait = 1000 // the specs must arrive in time even on a busy machine
}

// Open serves the runtime's CRI, and connects the kubelet to the socket of the runtime or of the CRI proxy.
func (s *criConnector) Open(_ context.Context, r *sim.Runtime) (err error) {
	if s.criServer, err = cri.Serve(r, cri.Options{Socket: s.runtimeSocket(), Received: s.comparer.received}); err != nil {
		return err
	}
	socket := s.runtimeSocket()
	if s.attach == "cri" {
		socket = s.proxySocket()
	}
	if s.kubelet, err = NewKubelet(r, socket, grpc.WithUnaryInterceptor(s.comparer.send)); err != nil || s.attach != "hooks" {
		return err
	}
	if s.proxyRequests == nil {
		s.proxyRequests = newStoredRequests()
	}
	return s.kubelet.sendThroughProxy(s.hooksSocket(), s.proxyRequests)
}

// Close closes the connections of the kubelet, and stops the CRI server.
func (s *criConnector) Close() (err error) {
	if s.kubelet != nil {
		err = s.kubelet.Close()
	}
	if s.criServer != nil {
		s.criServer.Close()
	}
	s.kubelet, s.criServer = nil, nil
	return err
}

// Act makes the kubelet perform the actions of a step.
func (s *criConnector) Act(ctx context.Context, step *scenario.Step) error {
	return s.kubelet.Act(ctx, step)
}

// Repeat repeats an update that an agent with attach: bypass possibly has undone. If such an agent reads the resources
// of a container just before the kubelet's update, it can write these old resources after the update.
func (s *criConnector) Repeat(ctx context.Context, step *scenario.Step) error {
	if s.attach != "bypass" {
		return nil
	}
	return s.kubelet.repeat(ctx, step.Update)
}

// AwaitReconnect waits until the agent has listed the pods and containers of the restarted runtime.
func (s *criConnector) AwaitReconnect(ctx context.Context, patience time.Duration) error {
	late := time.NewTimer(patience)
	defer late.Stop()
	check := time.NewTicker(2 * time.Millisecond)
	defer check.Stop()
	for s.criServer.ListCalls() == 0 {
		select {
		case <-check.C:
		case <-late.C:
			return fmt.Errorf("the agent did not list the runtime's pods and containers within %s", patience)
		case <-ctx.Done():
			return errors.New("the agent ended before it listed the runtime's pods and containers")
		}
	}
	return nil
}
