package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/trimtab/trimtab/internal/attach/auto"
	"github.com/trimtab/trimtab/internal/attach/bypass"
	"github.com/trimtab/trimtab/internal/attach/connect"
	"github.com/trimtab/trimtab/internal/attach/cri"
	"github.com/trimtab/trimtab/internal/attach/nri"
	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/report/api"
)

// attachments are the configured attachments to the runtime. A field is nil if the configuration does not use the
// attachment.
type attachments struct {
	nri    *nri.Attachment
	bypass *bypass.Attachment
	cri    *cri.Attachment
	auto   *auto.Failover // switches between nri and bypass; nil without attach: auto
}

// makeAttachments makes the configured attachments. With attach: auto, these are NRI, and bypass as the fallback while
// NRI is not connected. If a runtime launched this process as an NRI plugin, makeAttachments makes only NRI, because
// this process then ends when the connection to the runtime ends.
func (a *Agent) makeAttachments() error {
	c := a.opt.Config
	switch {
	case c.Attach == "bypass", c.Attach == "auto" && !c.NRI.Enabled:
		return a.makeBypass(a.conductor)
	case c.Attach == "cri", c.Attach == "hooks":
		a.nriHost = a.newNRIHost()
		a.attachments.cri = cri.New(cri.Options{
			Socket: c.CRI.Socket, Runtime: socketOf(c.CRI.Endpoint), Images: socketOf(c.CRI.ImageEndpoint),
			Listeners: a.opt.Listeners, Handler: a.conductor, Log: a.log, FailClosed: c.FailurePolicy.Agent == "fail",
			Hooks: hookService(c), UnchangedCalls: callsOf(disabledStages(c)), Admit: a.otherAgent.admit, Dial: a.opt.Dial, NRIHost: hostOrNil(a.nriHost), DecisionsDir: decisionsDirectory(c), FreeMemory: a.opt.FreeMemory,
		})
	case c.Attach == "auto" && !nri.Launched():
		a.attachments.auto = auto.New(auto.Options{Handler: a.conductor, Log: a.log, Recorder: a.metrics})
		a.makeNRI(a.attachments.auto.PreferredHandler(), a.attachments.reportNRIState)
		return a.makeBypass(a.attachments.auto.FallbackHandler())
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

// makeNRI makes the NRI attachment. If onState is not nil, the attachment calls onState each time the state of its
// connection changes.
func (a *Agent) makeNRI(h conductor.Handler, onState func(string, error)) {
	c := a.opt.Config
	a.attachments.nri = nri.New(nri.Options{
		Socket: c.NRI.Socket, Name: c.NRI.Name, Index: c.NRI.Index,
		Handler: h, Log: a.log, OnConfigure: a.settings.applyDropIn, OnState: onState,
		FailRequest: c.FailurePolicy.Agent == "fail", UnchangedCalls: callsOf(c.NRI.DisabledStages), Admit: a.otherAgent.admit, Dial: a.opt.Dial, Polls: a.opt.Polls,
	})
}

// makeBypass makes the attachment bypass, which reads the state of the runtime, but receives no requests from it.
func (a *Agent) makeBypass(h conductor.Handler) (err error) {
	c, watch := a.opt.Config, a.opt.Watch
	if watch == nil {
		watch = func() (cgroup.Watcher, error) { return cgroup.Watch(c.Cgroup.Root) }
	}
	a.attachments.bypass, err = bypass.New(bypass.Options{
		Endpoint: c.CRI.Endpoint, CgroupRoot: c.Bypass.CgroupRoot, Resync: c.Bypass.Resync.Duration(),
		Tree: a.node.tree, Proc: a.opt.Proc, PollInterval: a.opt.PollInterval, Watch: watch, Handler: h, Log: a.log,
		Admit: a.otherAgent.admit, Dial: a.opt.Dial,
	})
	return err
}

// run runs the attachments until ctx ends. If the runtime launched this process as a plugin, run returns when the
// connection ends.
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

// reportNRIState tells the failover, which switches between NRI and bypass, that NRI is down. It does this only if
// state is StateWaiting or StateLost, and ignores other states.
func (a *attachments) reportNRIState(state string, err error) {
	if state == nri.StateWaiting || state == connect.StateLost {
		a.auto.PreferredDown(err)
	}
}

// attachment is a way in which the agent is attached to the runtime: nri, cri or bypass.
type attachment interface {
	Name() string
	// Status returns the state of the connection, the name and version of the runtime, and the last error.
	Status() (state, runtime string, err error)
}

// all returns the configured attachments, the preferred one first.
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

// statesOf lists all possible states of an attachment.
func statesOf(at attachment) []string {
	switch at.(type) {
	case *cri.Attachment:
		return cri.States()
	case *bypass.Attachment:
		return bypass.States()
	}
	return nri.States()
}

// isActive reports whether the agent uses an attachment now. Without attach: auto, the only attachment is always
// active, and why is "". With attach: auto, why says since when the attachment is active, and for which reason.
func (a attachments) isActive(name string) (is bool, why string) {
	if a.auto == nil {
		return true, ""
	}
	side, text, since := a.auto.Active()
	has := map[auto.ActiveSide]string{auto.PreferredActive: a.nri.Name(), auto.FallbackActive: a.bypass.Name()}[side]
	if has != name {
		return false, ""
	}
	return true, fmt.Sprintf("in force since %s: %s", since.UTC().Format(time.RFC3339), text)
}

// forStatus completes a list of attachments for the status. With attach: auto, or if the list is empty, it adds the
// configured attachments that the list lacks. To each attachment of the list it adds why it is active. To the NRI
// attachment it adds the timeouts of the runtime and the fields that the runtime does not apply.
func (a attachments) forStatus(attached []api.Attachment) []api.Attachment {
	for _, at := range a.all() {
		has := false
		for i := range attached {
			if attached[i].Name == at.Name() {
				has = true
				_, attached[i].WhyActive = a.isActive(at.Name())
			}
		}
		if has || a.auto == nil && len(attached) > 0 {
			continue
		}
		state, runtime, err := at.Status()
		one := api.Attachment{Name: at.Name(), State: state, Runtime: runtime}
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
		if is, why := a.isActive(at.Name()); is && why != "" {
			return at.Name() + ": " + why
		}
	}
	return ""
}

// addRuntime adds what the NRI attachment knows about the runtime: the runtime's timeouts, and the fields that the
// runtime does not apply.
func (a attachments) addRuntime(at *api.Attachment) {
	if a.nri == nil || at.Name != a.nri.Name() {
		return
	}
	registration, request := a.nri.Timeouts()
	at.RegistrationTimeout, at.RequestTimeout = durationText(registration), durationText(request)
	if at.Runtime == "" {
		return
	}
	if _, _, err := a.nri.Status(); err != nil && at.Error == "" {
		at.Error = err.Error()
	}
	for _, f := range a.nri.MissingFields() {
		at.Unsupported = append(at.Unsupported, f.String())
	}
}
