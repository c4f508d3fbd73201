package cri

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	hooks "github.com/trimtab/trimtab/api/runtime/v1alpha1"
	"github.com/trimtab/trimtab/internal/attach/criclient"
	"github.com/trimtab/trimtab/internal/attach/relay"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/runtimes"
	"github.com/trimtab/trimtab/test/clock"
)

// decider answers every event with a value for every field, made from one text and one number.
type decider struct {
	text string
	n    int64
}

func (d *decider) Handle(context.Context, conductor.Carrier, lifecycle.Event) (conductor.Answer, error) {
	var all []lifecycle.Value
	for _, s := range fieldTable {
		all = append(all, lifecycle.Value{
			Field: s.field, Key: d.text, Text: d.text, Int: d.n,
			Mount:  &lifecycle.Mount{Destination: d.text, Source: d.text, Options: []string{d.text}},
			Device: &lifecycle.Device{Path: d.text, Type: d.text},
		})
	}
	return conductor.Answer{Values: all, Others: []conductor.Settings{{Container: d.text, Values: all}}}, nil
}

func (*decider) Wants() []lifecycle.Kind                       { return nil }
func (*decider) Attached(conductor.Carrier, conductor.Runtime) {}
func (*decider) Detached(conductor.Carrier, error)             {}

// FuzzHeld gives every held call arbitrary requests, including garbage, and similar answers of the runtime.
// There is no panic, not even a recovered one; what is not a message passes unchanged; and a changed
// request still has the caller's own parts.
func FuzzHeld(f *testing.F) {
	whole := &cri.CreateContainerRequest{
		PodSandboxId: "p", Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: "n"}, Envs: []*cri.KeyValue{{Key: "k", Value: []byte("v")}, nil}, Devices: []*cri.Device{{}},
			Annotations: map[string]string{"scheduling.koordinator.sh/resource-status": `{"cpuset":`},
			Linux:       &cri.LinuxContainerConfig{Resources: &cri.LinuxContainerResources{CpuShares: -1, HugepageLimits: []*cri.HugepageLimit{{}}}},
		},
		SandboxConfig: &cri.PodSandboxConfig{Annotations: map[string]string{"koordinator.sh/qosClass": "\x00"}},
	}
	b, err := proto.Marshal(whole)
	if err != nil {
		f.Fatal(err)
	}
	id, err := proto.Marshal(&cri.StartContainerRequest{ContainerId: "known"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b, b, "0-1", int64(1))
	f.Add([]byte{}, []byte{}, "", int64(0))
	f.Add(id, id, "a=b", int64(-1))
	f.Add([]byte{0x0a, 0xff}, []byte("\x0a\x01x"), "k", int64(1)<<62)
	f.Fuzz(func(t *testing.T, msg, answer []byte, text string, n int64) {
		clock.Bound(t, len(msg)+len(answer)+len(text), func() {
			var log bytes.Buffer
			a := New(Options{Handler: &decider{strings.ToValidUTF8(text, ""), n}, Log: slog.New(slog.NewTextHandler(&log, nil))})
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			a.queues.ctx = ctx
			var err error
			if a.client, err = criclient.New(filepath.Join(t.TempDir(), "nobody"), nil, a.log); err != nil {
				t.Fatal(err)
			}
			defer a.client.Close()
			a.store.notePod(&lifecycle.Pod{ID: "p"})
			a.store.noteContainer(&lifecycle.Container{ID: "known", PodID: "p", CgroupsPath: "/c"}, true)
			for _, method := range slices.Sorted(maps.Keys(handledCalls)) {
				v := a.calls.decide(ctx, method, handledCalls[method], msg)
				if method == "CreateContainer" && (v.Message != nil || v.Appended != nil) {
					checkChanged(t, a, msg, v)
				}
				if v.OnOutcome != nil {
					v.OnOutcome(relay.Outcome{Sent: true, Answered: true, Message: answer})
				}
			}
			a.queues.work.Wait()
			if strings.Contains(log.String(), "the agent recovered from a panic") {
				t.Error(log.String())
			}
		})
	})
}

// checkChanged compares a changed request with the same request decoded, changed and encoded. The runtime
// refuses a request that cannot be decoded.
func checkChanged(t *testing.T, a *Attachment, msg []byte, v relay.Verdict) {
	t.Helper()
	want, got, changed := &cri.CreateContainerRequest{}, &cri.CreateContainerRequest{}, v.Message
	if changed == nil {
		changed = slices.Concat(msg, v.Appended)
	}
	if proto.Unmarshal(msg, want) != nil {
		return
	}
	if err := proto.Unmarshal(changed, got); err != nil {
		t.Fatalf("%x became %x: %v", msg, changed, err)
	}
	ans, _ := a.o.Handler.Handle(context.Background(), nil, lifecycle.Event{})
	values, _ := a.link.splitSupported(runtimes.CreateCall, ans.Values)
	putInConfig(want.Config, values)
	if !proto.Equal(got, want) {
		t.Errorf("%x became\n%v, want\n%v", msg, got, want)
	}
}

// TestMadeAnew puts each value that a request can carry into a request, one after another, and each value
// that changes an existing entry.
func TestMadeAnew(t *testing.T) {
	has := &cri.CreateContainerRequest{PodSandboxId: "p", Config: &cri.ContainerConfig{
		Envs: []*cri.KeyValue{{Key: "k"}}, Mounts: []*cri.Mount{{ContainerPath: "k"}}, Devices: []*cri.Device{{ContainerPath: "k"}},
		CDIDevices: []*cri.CDIDevice{{Name: "k"}}, Annotations: map[string]string{"k": "v", "other": "v"},
		Linux: &cri.LinuxContainerConfig{Resources: &cri.LinuxContainerResources{
			CpuShares: 7, OomScoreAdj: 7, CpusetCpus: "7", Unified: map[string]string{"k": "7"}, HugepageLimits: []*cri.HugepageLimit{{PageSize: "k", Limit: 7}},
		}},
	}, SandboxConfig: &cri.PodSandboxConfig{Labels: map[string]string{"k": "v"}}}
	msg, err := proto.Marshal(has)
	if err != nil {
		t.Fatal(err)
	}
	a := New(Options{Log: slog.New(slog.DiscardHandler)})
	a.link.noteRuntime(criclient.Runtime{Kind: runtimes.Identify("containerd", "2.1.0", runtimes.Version{})})
	anew := map[lifecycle.Field]bool{}
	for _, s := range fieldTable {
		for _, text := range []string{"k", "l"} {
			for _, n := range []int64{0, 1000} {
				v := lifecycle.Value{
					Field: s.field, Key: text, Text: text, Int: n, Remove: s.field == lifecycle.Env && n != 0,
					Mount: &lifecycle.Mount{Destination: text, Source: "/s"}, Device: &lifecycle.Device{Path: text},
				}
				req, ok := parseCreateRequest(msg)
				if !ok {
					t.Fatal("it is no request")
				}
				message, more, left := a.calls.withValues(req, []lifecycle.Value{v})
				if message == nil {
					message = slices.Concat(msg, more)
				} else {
					anew[s.field] = true
				}
				want, got := proto.CloneOf(has), &cri.CreateContainerRequest{}
				if leftToo := putInConfig(want.Config, []lifecycle.Value{v}); len(left) != len(leftToo) {
					t.Errorf("%v: %v is left over, want %v", v, left, leftToo)
				}
				if err := proto.Unmarshal(message, got); err != nil || !proto.Equal(got, want) {
					t.Errorf("%v: %v\nwant %v (%v)", v, got, want, err)
				}
			}
		}
	}
	if len(anew) != 6 { // the lists, and the number that may be 0
		t.Errorf("made anew for %v", anew)
	}
}

// FuzzPathForm: the form of a path produces that path again.
func FuzzPathForm(f *testing.F) {
	f.Add("/kubepods/p/c", "/kubepods/p", "c")
	f.Add("p.slice:cri-containerd:c", "/kubepods.slice/p.slice", "c")
	f.Add("", "", "")
	f.Add("", "/", "/")
	f.Add("", strings.Repeat("/a", 60_000), strings.Repeat("c-", 60_000))
	f.Add(strings.Repeat("a-", 60_000)+".slice:b:c", strings.Repeat("a-", 60_000)+".slice", "c")
	f.Fuzz(func(t *testing.T, at, parent, id string) {
		defer clock.Watch(t, len(at)+len(parent)+len(id))()
		if form, ok := parsePathForm(at, parent, id); ok && form.path(parent, id) != at {
			t.Errorf("%q below %q, id %q: read %+v, which is %q", at, parent, id, form, form.path(parent, id))
		}
	})
}

// TestRecast: hook servers' resources have the fields of the CRI's, under the same numbers.
func TestRecast(t *testing.T) {
	theirs, ours := (&hooks.LinuxContainerResources{}).ProtoReflect().Descriptor().Fields(), (&cri.LinuxContainerResources{}).ProtoReflect().Descriptor().Fields()
	for i := range theirs.Len() {
		a := theirs.Get(i)
		if b := ours.ByNumber(a.Number()); b == nil || b.Name() != a.Name() || b.Kind() != a.Kind() || b.Cardinality() != a.Cardinality() {
			t.Errorf("%v: the CRI has %v", a, b)
		}
	}
}
