package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/kube"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/report/metrics"
	"github.com/trimtab/trimtab/internal/report/page"
	"github.com/trimtab/trimtab/internal/report/web"
	"github.com/trimtab/trimtab/internal/sleep"
)

// newMetrics makes the metrics recorder. It passes the possible values of labels, so that their series exist from the
// start.
func newMetrics(o Options) *metrics.Metrics {
	l := metrics.KnownLabelValues{Hooks: []string{"none"}, RefusedKinds: nodeview.RefusedKinds(), UpdateResults: nodeview.UpdateResults()}
	l.Switches, l.Ignored = [][2]string{{"none", "nri"}, {"none", "bypass"}, {"nri", "none"}, {"bypass", "none"}, {"bypass", "nri"}}, []string{"bypass"}
	l.Hooks = append(l.Hooks, lifecycle.HookServerName, lifecycle.ResourcePluginName)
	for _, h := range hook.Catalogue() {
		l.Hooks = append(l.Hooks, h.Name)
	}
	for _, s := range []keeper.State{keeper.Applied, keeper.Unchanged, keeper.Clipped, keeper.Pending, keeper.Refused, keeper.Ceded} {
		l.KernelResults = append(l.KernelResults, s.String())
	}
	return metrics.New(metrics.Build{Version: o.Version, Commit: o.Commit, Go: runtime.Version()}, l)
}

// relistenPause is the pause before the agent tries again to listen at an address that is in use.
const relistenPause = 200 * time.Millisecond

// serveHTTP serves http.address until ctx ends. If another program uses the address, serveHTTP returns an error, which
// ends the agent.
//
// In two cases serveHTTP tries again instead of returning this error. First, while this agent is in standby, because
// possibly the other agent uses the address. Second, with attach: cri, because the kubelet's calls go through this
// agent, so it must not end. If listening fails for a reason other than a used address, serveHTTP only logs the error.
func (a *Agent) serveHTTP(ctx context.Context, address string) error {
	o := web.Options{
		Metrics: a.metrics.Handler(), Alive: a.conductor.Alive, Ready: a.Ready, ReadyNote: a.attachments.activeAttachment, Page: a.newPage(), Log: a.log,
	}
	a.log.Info("the agent serves metrics and probes", logkey.Address, address)
	reported, again := false, false
	for {
		err := web.Serve(ctx, address, o)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, syscall.EADDRINUSE):
			a.log.Error("the agent cannot serve metrics and probes (http.address)", logkey.Address, address, logkey.Err, err)
			return nil
		case a.attachments.cri == nil:
			standby := a.otherAgent.admit() != nil
			if !standby && again { // the second failed try, because the other agent may have just ended
				return fmt.Errorf("http.address: another program listens at %s: stop it (ss -ltnp shows it), or set another port: %w", address, err)
			}
			again = !standby
		}
		if !again && !reported {
			reported = true
			a.log.Error("the agent cannot serve metrics and probes until the address is free (http.address)", logkey.Address, address, logkey.Err, err)
		}
		if !sleep.For(ctx, relistenPause) {
			return nil
		}
	}
}

// newPage makes the node's web page; nil if http.page is false.
func (a *Agent) newPage() http.Handler {
	if !a.opt.Config.HTTP.Page {
		return nil
	}
	o := page.Options{Source: a.Source()}
	if !a.isMachineSimulated() {
		o.Proc = os.DirFS(cmp.Or(a.opt.Proc, "/proc"))
	}
	o.Node, _ = kube.NodeName(a.opt.Config.Cluster.NodeName) // the page works without the name
	return page.New(o)
}

// isMachineSimulated reports whether the machine is simulated, and no directory replaces /proc. The page of such a
// machine cannot show its load, because /proc has the load of the real host.
func (a *Agent) isMachineSimulated() bool { return a.opt.Machine != nil && a.opt.Proc == "" }

// Ready returns the reason why the agent is not ready; nil if it is ready. The agent is ready if a runtime is attached,
// and the decisions about the runtime's running containers were applied.
func (a *Agent) Ready() error {
	if other := a.otherAgent.standby(); other != "" {
		return errors.New("standby: " + other)
	}
	err := nodeview.Ready(a.conductor)
	if err == nil {
		return nil
	}
	if a.Connected() {
		return err
	}
	all := a.attachments.all()
	if len(all) == 0 {
		return errors.New("no attachment is enabled: set nri.enabled to true, or change the value of attach")
	}
	for _, at := range all {
		state, _, cause := at.Status()
		err = fmt.Errorf("%w: %s: %s", err, at.Name(), state)
		if cause != nil {
			err = fmt.Errorf("%w: %w", err, cause)
		}
	}
	return err
}

// metricsSummary returns the state of the conductor and the agent for the metrics.
func (a *Agent) metricsSummary() api.Summary {
	n := nodeview.Summary(a.conductor)
	set := a.settings
	set.mu.Lock()
	n.ConfigGen, n.ConfigError = set.generation, set.refusedReason() != ""
	set.mu.Unlock()
	n.Cluster = a.clusterStatus()
	if h := a.hookServerStatus(); h != nil {
		n.HookServers = map[string]bool{}
		for _, s := range h.Servers {
			n.HookServers[s.File] = s.InForce && !s.Suspended
		}
	}
	if r := a.resourcePluginStatus(); r != nil {
		n.ResourcePlugins, n.PendingRemovals = map[string]bool{}, map[string]int{}
		for _, p := range r.Plugins {
			n.ResourcePlugins[p.Resource], n.PendingRemovals[p.Resource] = p.Answering, p.PendingRemovals
		}
	}
	if h := a.nriHostStatus(); h != nil {
		n.NRIPlugins = map[string]bool{}
		for _, p := range h.Plugins {
			n.NRIPlugins[p.Name] = p.Connected
		}
	}
	for _, at := range a.attachments.all() {
		state, _, _ := at.Status()
		has, _ := a.attachments.isActive(at.Name())
		n.Connections = append(n.Connections, api.Connection{Attachment: at.Name(), State: state, States: statesOf(at), Live: n.Attached && has})
	}
	return n
}

// durationText formats a duration; "" for 0.
func durationText(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return d.String()
}
