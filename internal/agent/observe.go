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

// newMetrics makes the metrics recorder with the label values that are known at the start.
func newMetrics(o Options) *metrics.Metrics {
	l := metrics.Labels{Hooks: []string{"none"}, Refused: nodeview.RefusedKinds(), Updates: nodeview.UpdateResults()}
	l.Switches, l.Ignored = [][2]string{{"none", "nri"}, {"none", "bypass"}, {"nri", "none"}, {"bypass", "none"}, {"bypass", "nri"}}, []string{"bypass"}
	l.Hooks = append(l.Hooks, lifecycle.HookServerName, lifecycle.ResourcePluginName)
	for _, h := range hook.Catalogue() {
		l.Hooks = append(l.Hooks, h.Name)
	}
	for _, s := range []keeper.State{keeper.Applied, keeper.Same, keeper.Clipped, keeper.Pending, keeper.Refused, keeper.Ceded} {
		l.Kernel = append(l.Kernel, s.String())
	}
	return metrics.New(metrics.Build{Version: o.Version, Commit: o.Commit, Go: runtime.Version()}, l)
}

// relisten is the pause before the agent tries again to listen at an address that is in use.
const relisten = 200 * time.Millisecond

// serveHTTP answers on http.address until ctx ends. If another program uses the address, serveHTTP returns
// an error, and the agent does not start. There are two exceptions, in which it tries again: in standby,
// because the other agent may use the address, and with attach: cri, because the kubelet's calls go through
// the agent, which must keep running. Any other error is only logged, because a node without metrics still
// needs its QoS.
func (a *Agent) serveHTTP(ctx context.Context, address string) error {
	o := web.Options{
		Metrics: a.metrics.Handler(), Alive: a.conductor.Alive, Ready: a.Ready, ReadyNote: a.attached.activeAttachment, Page: a.page(), Log: a.log,
	}
	a.log.Info("serving metrics and probes", logkey.Address, address)
	reported, again := false, false
	for {
		err := web.Serve(ctx, address, o)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, syscall.EADDRINUSE):
			a.log.Error("metrics and probes are not served", logkey.Address, address, logkey.Err, err)
			return nil
		case a.attached.cri == nil:
			standby := a.otherAgent.admit() != nil
			if !standby && again { // checked twice, because the other agent may have ended between the two checks
				return fmt.Errorf("http.address: another program listens at %s: stop it (ss -ltnp shows it), or set another port: %w", address, err)
			}
			again = !standby
		}
		if !again && !reported {
			reported = true
			a.log.Error("metrics and probes are not served until the address is free", logkey.Address, address, logkey.Err, err)
		}
		if !sleep.For(ctx, relisten) {
			return nil
		}
	}
}

// page makes the node's web page; nil if it is disabled.
func (a *Agent) page() http.Handler {
	if !a.opt.Config.HTTP.Page {
		return nil
	}
	o := page.Options{Source: a.Source()}
	if !a.described() {
		o.Proc = os.DirFS(cmp.Or(a.opt.Proc, "/proc"))
	}
	o.Node, _ = kube.NodeName(a.opt.Config.Cluster.NodeName) // the page also works without a host name
	return page.New(o)
}

// described reports whether a text describes the machine. Then no file of this node shows how busy its CPUs
// are.
func (a *Agent) described() bool { return a.opt.Machine != nil && a.opt.Proc == "" }

// Ready returns why the agent is not ready. It returns nil if a runtime is attached and its list was
// decided and applied.
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
	all := a.attached.all()
	if len(all) == 0 {
		return errors.New("no attachment is enabled (nri.enabled)")
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

// summary adds the agent's own numbers to those of the conductor.
func (a *Agent) summary() api.Summary {
	n := nodeview.Summary(a.conductor)
	set := a.settings
	set.mu.Lock()
	n.ConfigGen, n.ConfigError = set.generation, set.refusedReason() != ""
	set.mu.Unlock()
	n.Cluster = a.clusterStatus()
	if h := a.hookServers(); h != nil {
		n.HookServers = map[string]bool{}
		for _, s := range h.Servers {
			n.HookServers[s.File] = s.InForce && !s.Resting
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
	for _, at := range a.attached.all() {
		state, _, _ := at.Status()
		has, _ := a.attached.inForce(at.Name())
		n.Connections = append(n.Connections, api.Connection{Mode: at.Name(), State: state, States: statesOf(at), Live: n.Attached && has})
	}
	return n
}

// text formats a duration; "" for 0.
func text(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return d.String()
}
