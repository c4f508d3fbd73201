package agent

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/trimtab/trimtab/internal/attach/bypass"
	"github.com/trimtab/trimtab/internal/attach/cri"
	"github.com/trimtab/trimtab/internal/attach/nri"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/report/metrics"
	"github.com/trimtab/trimtab/internal/report/status"
	"github.com/trimtab/trimtab/internal/report/web"
)

// newMetrics makes the recorder, with the label values that are known
// beforehand.
func newMetrics(o Options) *metrics.Metrics {
	l := metrics.Labels{Hooks: []string{"none"}, Refused: conductor.RefusedKinds(), Updates: conductor.UpdateResults()}
	for _, h := range hook.Catalogue() {
		l.Hooks = append(l.Hooks, h.Name)
	}
	for _, s := range []keeper.State{keeper.Applied, keeper.Same, keeper.Clipped, keeper.Pending, keeper.Refused, keeper.Left} {
		l.Kernel = append(l.Kernel, s.String())
	}
	return metrics.New(metrics.Build{Version: o.Version, Commit: o.Commit, Go: runtime.Version()}, l)
}

// serveHTTP answers on http.address until ctx ends. A node whose metrics page
// cannot be served still needs its QoS, so a failure is only told.
func (a *Agent) serveHTTP(ctx context.Context, address string) {
	a.log.Info("serving metrics and probes", logkey.Address, address)
	err := web.Serve(ctx, address, web.Options{
		Metrics: a.metrics.Handler(), Alive: a.conductor.Alive, Ready: a.Ready, Log: a.log,
	})
	if err != nil {
		a.log.Error("metrics and probes are not served", logkey.Address, address, logkey.Err, err)
	}
}

// Ready reports why the node's containers are not kept yet; nil where a runtime
// is attached and what it runs has been taken over.
func (a *Agent) Ready() error {
	err := a.conductor.Ready()
	if err == nil {
		return nil
	}
	at := a.attachment()
	if at == nil {
		return errors.New("no attachment is switched on (nri.enabled)")
	}
	state, _, cause := at.Status()
	if cause != nil {
		return fmt.Errorf("%w: %s: %s: %w", err, at.Name(), state, cause)
	}
	return fmt.Errorf("%w: %s: %s", err, at.Name(), state)
}

// attachment is what people are told of whichever attachment there is.
type attachment interface {
	Name() string
	Status() (state, runtime string, err error)
}

// attachment returns the one the configuration chose; nil where it chose none.
func (a *Agent) attachment() attachment {
	switch {
	case a.cri != nil:
		return a.cri
	case a.bypass != nil:
		return a.bypass
	case a.nri != nil:
		return a.nri
	}
	return nil
}

// summary adds to the conductor's numbers what the agent knows of itself.
func (a *Agent) summary() status.Summary {
	n := a.conductor.Summary()
	a.mu.Lock()
	n.ConfigGen, n.ConfigError = a.generation, a.badConfig != ""
	a.mu.Unlock()
	if at := a.attachment(); at != nil {
		state, _, _ := at.Status()
		states := nri.States()
		switch {
		case a.cri != nil:
			states = cri.States()
		case a.bypass != nil:
			states = bypass.States()
		}
		n.Connections = append(n.Connections, status.Connection{Mode: at.Name(), State: state, States: states, Live: n.Attached})
	}
	return n
}

// addRuntime adds what is known of the runtime: its patience, and what it does
// not obey.
func (a *Agent) addRuntime(at *status.Attached) {
	if a.nri == nil || at.Name != a.nri.Name() {
		return
	}
	registration, request := a.nri.Timeouts()
	at.RegistrationTimeout, at.RequestTimeout = text(registration), text(request)
	if at.Runtime == "" {
		return
	}
	if _, _, err := a.nri.Status(); err != nil && at.Error == "" {
		at.Error = err.Error()
	}
	for _, f := range a.nri.Lacks() {
		at.Lacks = append(at.Lacks, f.String())
	}
}

// text prints a duration; "" for none.
func text(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return d.String()
}
