package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/trimtab/trimtab/internal/attach/auto"
	"github.com/trimtab/trimtab/internal/attach/bypass"
	"github.com/trimtab/trimtab/internal/attach/cri"
	"github.com/trimtab/trimtab/internal/attach/nri"
	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/report/api"
)

// attachments are the attachments that the configuration chose.
type attachments struct {
	nri    *nri.Attachment
	bypass *bypass.Attachment
	cri    *cri.Attachment
	auto   *auto.Failover // between nri and bypass
}

// attach makes the attachment that the configuration chooses. If a runtime launched this process as an NRI
// plugin, the process ends with the runtime, so no other attachment replaces NRI.
func (a *Agent) attach() error {
	c := a.opt.Config
	switch {
	case c.Attach == "bypass", c.Attach == "auto" && !c.NRI.Enabled:
		return a.makeBypass(a.conductor)
	case c.Attach == "cri", c.Attach == "hooks":
		a.host = a.nriHost()
		a.attached.cri = cri.New(cri.Options{
			Socket: c.CRI.Socket, Runtime: socketOf(c.CRI.Endpoint), Images: socketOf(c.CRI.ImageEndpoint),
			Listeners: a.opt.Listeners, Handler: a.conductor, Log: a.log, Fail: c.FailurePolicy.Agent == "fail",
			Hooks: hookService(c), Disabled: callsOf(disabledStages(c)), Admit: a.otherAgent.admit, Dial: a.opt.Dial, Host: hostOrNil(a.host), Decisions: decisionsDirectory(c), FreeMemory: a.opt.FreeMemory,
		})
	case c.Attach == "auto" && !nri.Launched():
		a.attached.auto = auto.New(auto.Options{Handler: a.conductor, Log: a.log, Recorder: a.metrics})
		a.makeNRI(a.attached.auto.Preferred(), a.attached.nriState)
		return a.makeBypass(a.attached.auto.Fallback())
	case c.NRI.Enabled:
		a.makeNRI(a.conductor, nil)
	}
	return nil
}

// decisionsDirectory returns the directory of the decisions that the OCI runtime wrapper applies; "" if the
// wrapper is not used.
func decisionsDirectory(c config.Config) string {
	if c.Attach != "cri" || !c.CRI.OCIWrapper.Enabled {
		return ""
	}
	return c.CRI.OCIWrapper.Directory
}

func (a *Agent) makeNRI(h conductor.Handler, onState func(string, error)) {
	c := a.opt.Config
	a.attached.nri = nri.New(nri.Options{
		Socket: c.NRI.Socket, Name: c.NRI.Name, Index: c.NRI.Index,
		Handler: h, Log: a.log, OnConfigure: a.settings.fromRuntime, OnState: onState,
		FailRequest: c.FailurePolicy.Agent == "fail", Disabled: callsOf(c.NRI.DisabledStages), Admit: a.otherAgent.admit, Dial: a.opt.Dial, Polls: a.opt.Polls,
	})
}

func (a *Agent) makeBypass(h conductor.Handler) (err error) {
	c, watch := a.opt.Config, a.opt.Watch
	if watch == nil {
		watch = func() (cgroup.Watcher, error) { return cgroup.Watch(c.Cgroup.Root) }
	}
	a.attached.bypass, err = bypass.New(bypass.Options{
		Endpoint: c.CRI.Endpoint, CgroupRoot: c.Bypass.CgroupRoot, Resync: c.Bypass.Interval(),
		Tree: a.node.tree, Proc: a.opt.Proc, PollInterval: a.opt.PollInterval, Watch: watch, Handler: h, Log: a.log,
		Admit: a.otherAgent.admit, Dial: a.opt.Dial,
	})
	return err
}

// run keeps the attachment running until ctx ends. A plugin that the runtime launched ends with its
// connection.
func (a attachments) run(ctx context.Context) error {
	switch {
	case a.auto != nil:
		return a.auto.Run(ctx, a.nri, a.bypass)
	case a.nri != nil:
		return a.nri.Run(ctx)
	case a.cri != nil:
		return a.cri.Run(ctx)
	case a.bypass != nil:
		return a.bypass.Run(ctx)
	}
	<-ctx.Done()
	return nil
}

// nriState reports to attach: auto that NRI is not connected.
func (a *attachments) nriState(state string, err error) {
	if state == nri.StateWaiting || state == nri.StateLost {
		a.auto.Away(err)
	}
}

// attachment has the methods of an attachment that status needs.
type attachment interface {
	Name() string
	Status() (state, runtime string, err error)
}

// all returns the attachments that the configuration chose, the preferred one first.
func (a attachments) all() []attachment {
	var all []attachment
	if a.cri != nil {
		all = append(all, a.cri)
	}
	if a.nri != nil {
		all = append(all, a.nri)
	}
	if a.bypass != nil {
		all = append(all, a.bypass)
	}
	return all
}

// statesOf lists the states of an attachment.
func statesOf(at attachment) []string {
	switch at.(type) {
	case *cri.Attachment:
		return cri.States()
	case *bypass.Attachment:
		return bypass.States()
	}
	return nri.States()
}

// inForce reports whether an attachment is active, and the reason if another one could be active.
func (a attachments) inForce(name string) (is bool, why string) {
	if a.auto == nil {
		return true, ""
	}
	side, text, since := a.auto.Active()
	has := map[auto.Side]string{auto.Preferred: a.nri.Name(), auto.Fallback: a.bypass.Name()}[side]
	if has != name {
		return false, ""
	}
	return true, fmt.Sprintf("in force since %s: %s", since.UTC().Format(time.RFC3339), text)
}

// forStatus returns the attachments for status. The conductor knows which are attached; the others report
// their own state.
func (a attachments) forStatus(attached []api.Attached) []api.Attached {
	for _, at := range a.all() {
		has := false
		for i := range attached {
			if attached[i].Name == at.Name() {
				has = true
				_, attached[i].InForce = a.inForce(at.Name())
			}
		}
		if has || a.auto == nil && len(attached) > 0 {
			continue
		}
		state, runtime, err := at.Status()
		one := api.Attached{Name: at.Name(), State: state, Runtime: runtime}
		if err != nil {
			one.Error = err.Error()
		}
		attached = append(attached, one)
	}
	for i := range attached {
		a.addRuntime(&attached[i])
	}
	return attached
}

// activeAttachment describes the active attachment in one line; "" if there is only one attachment.
func (a attachments) activeAttachment() string {
	for _, at := range a.all() {
		if is, why := a.inForce(at.Name()); is && why != "" {
			return at.Name() + ": " + why
		}
	}
	return ""
}

// addRuntime adds what the attachment knows of the runtime: its time limit, and the settings that it does
// not apply.
func (a attachments) addRuntime(at *api.Attached) {
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
