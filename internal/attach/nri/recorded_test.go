package nri

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/keeper"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/none"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/topology"
	"github.com/trimtab/trimtab/test/attachtest"
)

// recording is a sequence of messages as one kind of runtime sends them, with the expected results. It is
// played over a connection to an attachment with a real conductor on a simulated kernel of eight CPUs.
type recording struct {
	About   string
	Runtime *struct{ Name, Version, NRI string }
	Steps   []recordedStep
}

type recordedStep struct {
	// Send is the name of the request, In the request itself, in which RECORD stands for the last record
	// that was written. Out is the expected answer, if it matters; records in it are compared only by name.
	Send    string
	In, Out json.RawMessage
	// Cgroups are created before the request.
	Cgroups []string
	// Kernel is the expected content of files afterwards.
	Kernel map[string]string
	// Explain is the expected report about namespace/pod/container: id, pool and CPUs.
	Explain map[string]string
	// Unapplied are the values of Explain's containers that are not in force.
	Unapplied []string
	State     string // of the connection
	Restart   bool   // a new agent, with the same key and checkpoint
}

func TestRecorded(t *testing.T) {
	files, err := filepath.Glob("testdata/recorded/*.json")
	if err != nil || len(files) < 4 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var r recording
			if err := json.Unmarshal(text, &r); err != nil {
				t.Fatal(err)
			}
			p := &player{t: t, r: r, records: map[string]string{}}
			p.kernel, err = kernel.NewCgroups(cgroup.V2, "0-7", "0")
			if err != nil {
				t.Fatal(err)
			}
			p.connect(nil)
			for i, s := range r.Steps {
				p.at = fmt.Sprintf("step %d, %s", i, s.Send)
				p.play(s)
			}
		})
	}
}

type player struct {
	t      *testing.T
	r      recording
	at     string
	kernel *kernel.Cgroups
	con    *conductor.Conductor
	a      *Attachment
	wire   *wire
	record string // the last one that was written
	// records are the records of containers by id, for "RECORD id".
	records map[string]string
}

// connect starts an agent and registers it with the runtime.
func (p *player) connect(checkpoint []byte) {
	p.t.Helper()
	var cpus []topology.CPU
	for i := range 8 {
		cpus = append(cpus, topology.CPU{ID: i, Core: i})
	}
	m, err := topology.New(cpus, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	p.con = conductor.New(conductor.Options{
		Machine: m, Key: []byte("a key of the test, 32 bytes long"), Log: discard(), Now: time.Now, Checkpoint: checkpoint,
		Keeper: keeper.New(&cgroup.Tree{FS: p.kernel, Version: cgroup.V2}),
		Policy: engine.Policy{
			Dialects: []string{"koordinator", "kubernetes"}, PlacementOn: true, Placement: none.Policy{},
			Pools: placement.Pools{Online: m.Online(), Shared: m.Online(), Reclaimed: m.Online()},
			Rules: intent.Rules{{Kinds: []intent.Kind{"*"}, Namespaces: []string{"*"}, Decision: intent.Allow}},
			Hooks: []hook.Hook{hook.CPUSetOptions{UnsetQuota: true}, hook.BatchOptions{}, hook.GPU{}, hook.OOMScoreOptions{}},
		},
	})
	if p.wire != nil {
		p.wire.close()
	}
	p.a, p.wire, _ = wired(p.t, Options{Handler: p.con})
	ctx, stop := context.WithCancel(p.t.Context())
	done := make(chan error, 1)
	go func() { done <- p.con.Run(ctx) }()
	p.t.Cleanup(func() { stop(); <-done })
	p.wire.updates = func(context.Context, *api.UpdateContainersRequest) (*api.UpdateContainersResponse, error) {
		return &api.UpdateContainersResponse{}, nil
	}
	configure(p.t, p.wire, &api.ConfigureRequest{RuntimeName: p.r.Runtime.Name, RuntimeVersion: p.r.Runtime.Version, NRIVersion: p.r.Runtime.NRI})
}

func (p *player) play(s recordedStep) {
	p.t.Helper()
	if s.Restart {
		p.connect(p.con.Checkpoint().Text())
	}
	for _, dir := range s.Cgroups {
		if err := p.kernel.MkdirRunc(dir); err != nil {
			p.t.Fatal(err)
		}
	}
	if s.Send != "" {
		p.send(s)
	}
	p.con.Flush()
	for file, want := range s.Kernel {
		got, err := p.kernel.ReadFile(file)
		if text := strings.TrimSpace(string(got)); err != nil || text != want {
			p.t.Errorf("%s: %s is %q (%v), want %q", p.at, file, text, err, want)
		}
	}
	if s.State != "" {
		attachtest.Until(p.t, p.at+": "+s.State, inState(p.a, s.State))
	}
	p.explain(s)
}

var stamped = regexp.MustCompile(`^[0-9a-f]{32} \{.*\}$`)

// send sends one request and compares the answer.
func (p *player) send(s recordedStep) {
	p.t.Helper()
	record, err := json.Marshal(p.record)
	if err != nil {
		p.t.Fatal(err)
	}
	in := bytes.ReplaceAll(s.In, []byte(`"RECORD"`), record)
	for id, text := range p.records {
		if record, err = json.Marshal(text); err != nil {
			p.t.Fatal(err)
		}
		in = bytes.ReplaceAll(in, []byte(`"RECORD `+id+`"`), record)
	}
	out, err := p.call(s.Send, in)
	if err != nil {
		p.t.Fatalf("%s: %v", p.at, err)
	}
	if s.Out == nil {
		return
	}
	want := out.ProtoReflect().New().Interface()
	if err := protojson.Unmarshal(s.Out, want); err != nil {
		p.t.Fatalf("%s: %v", p.at, err)
	}
	if c, ok := out.(*api.CreateContainerResponse); ok {
		for key, text := range c.GetAdjust().GetAnnotations() {
			if key == conductor.RecordKey && stamped.MatchString(text) {
				p.record = text
				var asked struct{ Container struct{ ID string } }
				if err := json.Unmarshal(s.In, &asked); err != nil {
					p.t.Fatal(err)
				}
				p.records[asked.Container.ID] = text
				c.Adjust.Annotations[key] = "record"
			}
		}
	}
	if d := cmp.Diff(want, out, protocmp.Transform()); d != "" {
		p.t.Errorf("%s: the answer (-want +got):\n%s", p.at, d)
	}
}

func request[T any, P interface {
	*T
	proto.Message
}, R proto.Message](t *testing.T, call func(context.Context, P) (R, error), in []byte) (proto.Message, error) {
	t.Helper()
	req := P(new(T))
	if len(in) > 0 {
		if err := protojson.Unmarshal(in, req); err != nil {
			t.Fatal(err)
		}
	}
	return call(t.Context(), req)
}

func (p *player) call(name string, in []byte) (proto.Message, error) {
	w := p.wire.plugin
	switch name {
	case "Synchronize":
		return request(p.t, w.Synchronize, in)
	case "StateChange":
		return request(p.t, w.StateChange, in)
	case "CreateContainer":
		return request(p.t, w.CreateContainer, in)
	case "UpdateContainer":
		return request(p.t, w.UpdateContainer, in)
	case "StopContainer":
		return request(p.t, w.StopContainer, in)
	}
	p.t.Fatalf("%s: no such request", p.at)
	return nil, nil
}

func (p *player) explain(s recordedStep) {
	p.t.Helper()
	var unapplied []string
	for name, want := range s.Explain {
		parts := strings.Split(name, "/")
		got := "nothing"
		all, _ := nodeview.Explain(p.con, parts[0], parts[1], parts[2])
		for _, c := range all {
			got = fmt.Sprintf("%s, %s, %s", c.State, c.CPUGroup, c.CPUs)
			for _, v := range c.Values {
				if !v.Applied {
					unapplied = append(unapplied, v.Field+": "+v.Note)
				}
			}
			for _, q := range c.Problems {
				got += ", " + q.Reason
			}
		}
		if got != want {
			p.t.Errorf("%s: %s is %q, want %q", p.at, name, got, want)
		}
	}
	if d := cmp.Diff(s.Unapplied, unapplied); s.Explain != nil && d != "" {
		p.t.Errorf("%s: not in force (-want +got):\n%s", p.at, d)
	}
}
