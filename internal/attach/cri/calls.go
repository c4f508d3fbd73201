package cri

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/trimtab/trimtab/internal/attach/cri/relay"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/runtimes"
)

// services are those whose calls are held. v1alpha2 (Kubernetes before 1.26)
// has the same fields under the same numbers.
var services = []string{"/runtime.v1.RuntimeService/", "/runtime.v1alpha2.RuntimeService/"}

// heldCall is what is done with a held call.
type heldCall func(a *Attachment, ctx context.Context, msg []byte) relay.Verdict

// held are the calls that are decoded. All others pass.
var held = map[string]heldCall{
	"RunPodSandbox":             (*Attachment).runPod,
	"UpdatePodSandboxResources": (*Attachment).updatePod,
	"StopPodSandbox":            (*Attachment).stopPod,
	"RemovePodSandbox":          (*Attachment).removePod,
	"CreateContainer":           (*Attachment).createContainer,
	"StartContainer":            (*Attachment).startContainer,
	"UpdateContainerResources":  (*Attachment).updateContainer,
	"StopContainer":             (*Attachment).stopContainer,
	"RemoveContainer":           (*Attachment).removeContainer,
}

// ends are those of them that nothing is decided about: what is told of them
// follows the runtime's answer.
var ends = map[string]bool{"StopPodSandbox": true, "RemovePodSandbox": true, "StopContainer": true, "RemoveContainer": true}

// pick says which calls are held: none, while it is not known how things stand.
func (a *Attachment) pick(path string) relay.Held {
	for _, service := range services {
		method, ours := strings.CutPrefix(path, service)
		if !ours {
			continue
		}
		call, ok := held[method]
		if !ok {
			return relay.Held{}
		}
		a.mu.Lock()
		known, standby := a.known, a.standby
		a.mu.Unlock()
		switch {
		case known:
			return relay.Held{Quick: ends[method], Hook: func(ctx context.Context, msg []byte) relay.Verdict {
				return a.decide(ctx, method, call, msg)
			}}
		case a.o.Fail && !standby && method == "CreateContainer":
			return relay.Held{Quick: true, Hook: func(context.Context, []byte) relay.Verdict {
				return refuse(codes.Unavailable, "trimtab: it is not known yet what runs; failurePolicy.agent says that no container is created undecided")
			}}
		}
		return relay.Held{}
	}
	return relay.Held{}
}

func refuse(code codes.Code, text string) relay.Verdict {
	return relay.Verdict{Refuse: &relay.Status{Code: code, Text: text}}
}

// decide makes one call's verdict. A fault of ours lets the call pass, unless
// the policy is to fail.
func (a *Attachment) decide(ctx context.Context, method string, call heldCall, msg []byte) (v relay.Verdict) {
	if !a.contain(method, func() { v = call(a, ctx, msg) }) {
		v = relay.Verdict{}
		if a.o.Fail && method == "CreateContainer" {
			v = refuse(codes.Internal, "trimtab: deciding failed; failurePolicy.agent says that no container is created undecided")
		}
	}
	return v
}

// handle asks the handler. Only a policy's no comes out as an error.
func (a *Attachment) handle(ctx context.Context, ev lifecycle.Event) (conductor.Answer, error) {
	ans, err := a.o.Handler.Handle(ctx, a, ev)
	var rejected *conductor.Rejection
	if errors.As(err, &rejected) {
		return ans, rejected
	}
	if err != nil {
		a.o.Log.Error("event answered with no change", logkey.Op, ans.Op, logkey.Event, ev.Kind.String(), logkey.Err, err)
		return conductor.Answer{}, nil
	}
	a.others(ans.Others)
	return ans, nil
}

// tell is handle for what has happened already.
func (a *Attachment) tell(ctx context.Context, ev lifecycle.Event) {
	if _, err := a.handle(ctx, ev); err != nil {
		a.o.Log.Warn("what has happened cannot be refused", logkey.Event, ev.Kind.String(), logkey.Err, err)
	}
}

// others takes values for containers that exist: those that have not started
// get them before they do, those that are starting at once.
func (a *Attachment) others(all []conductor.Settings) {
	for _, s := range all {
		late := false
		a.change(s.Container, func(c *ctr) {
			if late = c.started; !late {
				c.pending = merge(c.pending, s.Values)
			}
		})
		if late {
			a.work.Go(func() {
				if err := a.send(a.ctx, s.Container, s.Values); err != nil {
					a.o.Log.Warn("the runtime's copy could not be changed", append(a.whose(s.Container), logkey.Err, err)...)
				}
			})
		}
	}
}

// encode is the changed message, with the fields that are unknown here.
func (a *Attachment) encode(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		a.o.Log.Error("a changed request cannot be encoded; the original goes on", logkey.Err, err)
		return nil
	}
	return b
}

// report tells of values that were handed to us though we cannot carry them.
func (a *Attachment) report(id string, left []lifecycle.Value) {
	for _, v := range left {
		a.o.Log.Warn("value not carried by the cri", append(a.whose(id), logkey.Field, v.Field.String(), logkey.Value, v.String())...)
	}
}

// whose names a container in a log line, with its pod where that is known.
func (a *Attachment) whose(id string) []any {
	c, p := a.container(id)
	if c == nil || p == nil {
		return []any{logkey.Container, id}
	}
	return []any{logkey.Container, c.Name, logkey.Owner, id, logkey.Pod, p.Name, logkey.Namespace, p.Namespace}
}

// done is what becomes of a call the runtime confirmed.
func done(f func()) func(relay.Outcome) {
	return func(o relay.Outcome) {
		if o.Answered && o.Code == codes.OK {
			f()
		}
	}
}

// decodable is what a request must be to be held; what is malformed is left to
// the runtime to complain of.
func decodable[M proto.Message](msg []byte, into M) bool { return proto.Unmarshal(msg, into) == nil }

func (a *Attachment) runPod(ctx context.Context, msg []byte) relay.Verdict {
	req := &cri.RunPodSandboxRequest{}
	if !decodable(msg, req) || req.Config == nil {
		return relay.Verdict{}
	}
	changed, err := a.beforePod(ctx, req)
	if err != nil {
		return refuse(codes.FailedPrecondition, err.Error())
	}
	return relay.Verdict{Message: changed, Done: func(o relay.Outcome) {
		resp := &cri.RunPodSandboxResponse{}
		if !o.Answered || o.Code != codes.OK || !decodable(o.Message, resp) || resp.PodSandboxId == "" {
			return
		}
		p := podIn(req.Config, resp.PodSandboxId, req.RuntimeHandler)
		a.notePod(p)
		a.after(p.ID, func(ctx context.Context) { a.tell(ctx, lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: p}) })
	}}
}

func (a *Attachment) updatePod(ctx context.Context, msg []byte) relay.Verdict {
	req := &cri.UpdatePodSandboxResourcesRequest{}
	if !decodable(msg, req) {
		return relay.Verdict{}
	}
	a.await(ctx, req.PodSandboxId)
	return relay.Verdict{Done: done(func() {
		a.after(req.PodSandboxId, func(ctx context.Context) {
			p := a.pod(req.PodSandboxId)
			if p == nil {
				return
			}
			n := *p
			ev := lifecycle.Event{Kind: lifecycle.UpdatePodSandbox, Pod: &n, Overhead: resourcesIn(req.Overhead), Requested: resourcesIn(req.Resources)}
			if ev.Overhead != nil {
				n.Overhead = ev.Overhead
			}
			if ev.Requested != nil {
				n.Resources = ev.Requested
			}
			a.notePod(&n)
			a.tell(ctx, ev)
		})
	})}
}

func (a *Attachment) stopPod(_ context.Context, msg []byte) relay.Verdict {
	req := &cri.StopPodSandboxRequest{}
	if !decodable(msg, req) {
		return relay.Verdict{}
	}
	return relay.Verdict{Done: done(func() {
		a.after(req.PodSandboxId, func(ctx context.Context) { a.endPod(ctx, req.PodSandboxId, lifecycle.StopPodSandbox) })
	})}
}

func (a *Attachment) removePod(_ context.Context, msg []byte) relay.Verdict {
	req := &cri.RemovePodSandboxRequest{}
	if !decodable(msg, req) {
		return relay.Verdict{}
	}
	return relay.Verdict{Done: done(func() {
		a.after(req.PodSandboxId, func(ctx context.Context) { a.endPod(ctx, req.PodSandboxId, lifecycle.RemovePodSandbox) })
	})}
}

// endPod tells of a pod's end.
func (a *Attachment) endPod(ctx context.Context, id string, kind lifecycle.Kind) {
	p := a.pod(id)
	if p == nil {
		return
	}
	a.tell(ctx, lifecycle.Event{Kind: kind, Pod: p})
	if kind == lifecycle.RemovePodSandbox {
		a.dropPod(id)
	}
}

func (a *Attachment) createContainer(ctx context.Context, msg []byte) relay.Verdict {
	req, ok := creationIn(msg)
	if !ok {
		return relay.Verdict{}
	}
	a.await(ctx, req.pod)
	p := a.pod(req.pod)
	if p == nil { // its own call passed before we knew how things stand
		p = req.podIn()
		a.notePod(p)
	} else if p.Unread != "" { // the kubelet says what the runtime could not
		handler := p.RuntimeHandler
		p = req.podIn()
		p.RuntimeHandler = handler
		a.notePod(p)
		a.retrySoon(p.ID)
		a.tell(ctx, lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: p})
	}
	told := req.told
	told.ID = a.former()
	ans, err := a.handle(ctx, lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: p, Container: told})
	if err != nil {
		return refuse(codes.FailedPrecondition, err.Error())
	}
	v := relay.Verdict{Done: func(o relay.Outcome) { a.created(o, p, told) }}
	if len(ans.Values) > 0 {
		var left []lifecycle.Value
		v.Message, v.More, left = a.changed(req, ans.Values)
		a.report(told.Name, left)
	}
	return v
}

// former is the id of a container whose creation is asked for.
func (a *Attachment) former() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.serial++
	return "creating-" + strconv.FormatUint(a.serial, 10)
}

// created follows a container to the id the runtime gave it, or forgets it. A
// creation whose end nobody saw is forgotten too: if it was done, the container
// is found in the runtime's list.
func (a *Attachment) created(o relay.Outcome, p *lifecycle.Pod, decided *lifecycle.Container) {
	resp := &cri.CreateContainerResponse{}
	if !o.Answered || o.Code != codes.OK || !decodable(o.Message, resp) || resp.ContainerId == "" {
		a.after(p.ID, func(ctx context.Context) {
			a.tell(ctx, lifecycle.Event{Kind: lifecycle.RemoveContainer, Pod: p, Container: decided})
		})
		return
	}
	told := *decided
	told.ID = resp.ContainerId
	told.Args, told.Mounts, told.Devices = nil, nil, nil // nobody asks for them again
	a.noteContainer(&told, false)
	a.after(p.ID, func(ctx context.Context) {
		// Before it starts others may be given its CPUs: it is found by its cgroup.
		a.tell(ctx, lifecycle.Event{Kind: lifecycle.PostCreateContainer, Pod: p, Container: a.place(ctx, &told, p), Former: decided.ID})
	})
}

// find returns a container that was told of, or asks the runtime for one that
// was not; nil for one nobody knows.
func (a *Attachment) find(ctx context.Context, id string) (*lifecycle.Container, *lifecycle.Pod) {
	c, p := a.container(id)
	if c != nil && c.Unread != "" && p.Unread == "" {
		if full, err := a.backend.container(ctx, id, c.PodID); err == nil && full.State != lifecycle.StateUnknown {
			a.await(ctx, p.ID)
			a.takeIn(ctx, full, p, c)
		}
	}
	if c == nil {
		full, err := a.backend.container(ctx, id, "")
		if err != nil || full.PodID == "" || a.pod(full.PodID) == nil {
			return nil, nil
		}
		a.noteContainer(full, full.State == lifecycle.StateRunning)
		if c, p = a.container(id); c == nil {
			return nil, nil
		}
	}
	a.await(ctx, p.ID) // what was to be told may have told us more, or that it is gone
	return a.container(id)
}

func (a *Attachment) startContainer(ctx context.Context, msg []byte) relay.Verdict {
	req := &cri.StartContainerRequest{}
	if !decodable(msg, req) {
		return relay.Verdict{}
	}
	c, p := a.find(ctx, req.ContainerId)
	if c == nil {
		return relay.Verdict{}
	}
	c = a.place(ctx, c, p)
	serial, end := a.start()
	handed := false // to Done
	defer func() {
		if !handed {
			end()
		}
	}()
	ans, err := a.handle(ctx, lifecycle.Event{Kind: lifecycle.StartContainer, Pod: p, Container: c})
	if err != nil {
		end()
		return refuse(codes.FailedPrecondition, err.Error())
	}
	var pending []lifecycle.Value
	a.change(c.ID, func(k *ctr) {
		pending, k.pending, k.started = k.pending, nil, true
	})
	if len(pending) > 0 {
		if err := a.send(ctx, c.ID, pending); err != nil {
			a.o.Log.Warn("a container starts with what it was created with; the kernel is corrected at once", append(a.whose(c.ID), logkey.Err, err)...)
		}
	}
	if ans.Owns {
		a.starting(ctx, serial)
	}
	handed = true
	return relay.Verdict{Done: func(relay.Outcome) {
		a.after(p.ID, func(ctx context.Context) {
			defer end()
			a.tell(ctx, lifecycle.Event{Kind: lifecycle.PostStartContainer, Pod: p, Container: c})
		})
	}}
}

func (a *Attachment) updateContainer(ctx context.Context, msg []byte) relay.Verdict {
	req := &cri.UpdateContainerResourcesRequest{}
	if !decodable(msg, req) {
		return relay.Verdict{}
	}
	c, p := a.find(ctx, req.ContainerId)
	if c == nil {
		return relay.Verdict{}
	}
	asked := resourcesIn(req.Linux)
	if asked == nil {
		asked = &lifecycle.Resources{}
	}
	ans, err := a.handle(ctx, lifecycle.Event{Kind: lifecycle.UpdateContainer, Pod: p, Container: c, Requested: asked})
	if err != nil {
		return refuse(codes.FailedPrecondition, err.Error())
	}
	v := relay.Verdict{Done: func(relay.Outcome) {
		a.after(p.ID, func(ctx context.Context) {
			a.tell(ctx, lifecycle.Event{Kind: lifecycle.PostUpdateContainer, Pod: p, Container: c})
		})
	}}
	if len(ans.Values) > 0 {
		if req.Linux == nil {
			req.Linux = &pRes{}
		}
		values, left := a.taken(runtimes.Request, ans.Values)
		a.report(c.Name, append(left, update(req.Linux, values)...))
		a.change(c.ID, func(k *ctr) {
			if len(k.pending) > 0 {
				k.pending = merge(k.pending, ans.Values)
			}
		})
		v.Message = a.encode(req)
	}
	return v
}

func (a *Attachment) stopContainer(_ context.Context, msg []byte) relay.Verdict {
	req := &cri.StopContainerRequest{}
	if !decodable(msg, req) {
		return relay.Verdict{}
	}
	return a.ends(req.ContainerId, lifecycle.StopContainer)
}

func (a *Attachment) removeContainer(_ context.Context, msg []byte) relay.Verdict {
	req := &cri.RemoveContainerRequest{}
	if !decodable(msg, req) {
		return relay.Verdict{}
	}
	return a.ends(req.ContainerId, lifecycle.RemoveContainer)
}

func (a *Attachment) ends(id string, kind lifecycle.Kind) relay.Verdict {
	c, p := a.container(id)
	if c == nil {
		return relay.Verdict{}
	}
	return relay.Verdict{Done: done(func() {
		a.after(p.ID, func(ctx context.Context) { a.endContainer(ctx, c, p, kind) })
	})}
}

// endContainer tells of a container's end, once.
func (a *Attachment) endContainer(ctx context.Context, c *lifecycle.Container, p *lifecycle.Pod, kind lifecycle.Kind) {
	again := true
	a.change(c.ID, func(k *ctr) { again, k.ended = k.ended, true })
	if kind == lifecycle.RemoveContainer {
		a.dropContainer(c.ID)
	} else if again {
		return
	}
	a.tell(ctx, lifecycle.Event{Kind: kind, Pod: p, Container: c})
}
