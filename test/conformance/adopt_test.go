package conformance

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	nriapi "github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/trimtab/trimtab/internal/adopt"
	"github.com/trimtab/trimtab/internal/agent"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/status"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

// leftNode is a node as another agent leaves it.
type leftNode struct {
	About  string `json:"about"`
	System string `json:"system"`
	// Scenario runs the pods and gives them the CPUs that the other agent gave them. The agent observes
	// meanwhile.
	Scenario scenario.Scenario `json:"scenario"`
	// Files are the other agent's, by path. ID(NAMESPACE/POD/CONTAINER) and UID(NAMESPACE/POD) stand for the id of
	// a container and the UID of a pod.
	Files map[string]string `json:"files"`
	// Kernel are cpusets that the other agent wrote past the runtime.
	Kernel map[scenario.Ref]string `json:"kernel"`
	// Rows is how many rows the files have.
	Rows int `json:"rows"`
	// Moves are the containers that cannot keep their CPUs, with a part of the reason. All others do.
	Moves map[scenario.Ref]string `json:"moves"`
	// Stays: containers stay also if nothing is read of the other agent.
	Stays bool `json:"stays"`
	// Differs are the cpusets that an agent which observes would set otherwise, as "NODE, not TRIMTAB".
	Differs map[scenario.Ref]string `json:"differs"`
	// Owns are the CPUs that containers own afterwards.
	Owns map[scenario.Ref]string `json:"owns"`
	// Balloons are those that exist afterwards.
	Balloons *scenario.Balloons `json:"balloons"`
}

func leftNodes(t *testing.T) map[string]*leftNode {
	t.Helper()
	files, err := filepath.Glob("testdata/adopt/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d nodes, %v", len(files), err)
	}
	all := map[string]*leftNode{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		n := &leftNode{}
		if err := yaml.UnmarshalStrict(text, n); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		n.Scenario.Name, n.Scenario.Steps = name, onePodAStep(n.Scenario.Steps)
		all[name] = n
	}
	return all
}

// onePodAStep splits steps that run several pods: bypass decides pods of one step in any order, and their CPUs may
// depend on it.
func onePodAStep(steps []scenario.Step) (all []scenario.Step) {
	for i := range steps {
		for len(steps[i].Run) > 1 {
			all = append(all, scenario.Step{Name: steps[i].Name, Run: steps[i].Run[:1]})
			steps[i].Run = steps[i].Run[1:]
		}
		all = append(all, steps[i])
	}
	return all
}

// takingOver plays one node: an agent observes, and another one takes over and is started again.
type takingOver struct {
	node     *leftNode
	kernel   *kernel.Cgroups
	starts   int
	reads    bool // the files are read; without it nothing is taken over
	config   config.Config
	planned  api.Adoption
	cpus     []map[scenario.Ref]string // before, and after each start
	reported map[scenario.Ref]api.Container
	balloons map[string]string
	failed   error
}

func (o *takingOver) options(t *testing.T, attach string) sim.RunOptions {
	t.Helper()
	last := len(o.node.Scenario.Steps) - 1
	o.node.Scenario.Steps = append(slices.Clip(o.node.Scenario.Steps),
		scenario.Step{Name: "Trimtab takes over", Restart: "agent"}, scenario.Step{Name: "and is started again", Restart: "agent"})
	r := sim.RunOptions{
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Patience: time.Minute, KeepState: true,
		BeforeStart: func(k *kernel.Cgroups, _ string) error { o.kernel = k; return nil },
		Agent: func(a sim.AgentOptions) (sim.Agent, error) {
			if o.config = a.Config; o.starts == 0 {
				a.Config.Mode = "observe"
			}
			o.starts++
			return NewAgent(a)
		},
		ExtraCheck: func(i int, r *sim.Runtime, source status.Source) (unmet []string) {
			if known, all := len(source.Status().Containers), len(r.Containers()); i >= last && known != all {
				unmet = append(unmet, fmt.Sprintf("the agent knows %d of %d containers", known, all))
			}
			return unmet
		},
		AfterStep: func(i int, r *sim.Runtime, source status.Source) {
			if i < last || o.failed != nil {
				return
			}
			if i == last {
				o.failed = o.hand(r, source)
			}
			o.cpus = append(o.cpus, cpusOf(r))
			o.balloons, o.reported = sim.BalloonsOf(source.Status().CPUs.Pools), map[scenario.Ref]api.Container{}
			for _, c := range source.Status().Containers {
				o.reported[scenario.Ref(c.Pod+"/"+c.Name)] = c
			}
		},
	}
	if attach != "nri" {
		r.Connector = &criConnector{attach: attach}
	}
	return r
}

// hand reads what the other agent left, asks who would keep what, and has the next start take over.
func (o *takingOver) hand(r *sim.Runtime, source status.Source) error {
	root, words := fstest.MapFS{}, []string{}
	for _, c := range r.Containers() {
		words = append(words, "ID("+string(c.Ref)+")", c.ID, "UID("+string(c.Ref.Pod())+")", r.UID(c.Ref.Pod()))
	}
	for path, text := range o.node.Files {
		root[strings.TrimPrefix(path, "/")] = &fstest.MapFile{Data: []byte(strings.NewReplacer(words...).Replace(text))}
	}
	if err := o.write(r); err != nil {
		return err
	}
	system, err := adopt.FindSystem(o.node.System)
	if err != nil {
		return err
	}
	found, err := system.Read(root)
	if err != nil {
		return err
	}
	if len(found.Containers) != o.node.Rows {
		return fmt.Errorf("%d rows were read instead of %d: %v", len(found.Containers), o.node.Rows, found.Containers)
	}
	if !o.reads {
		return nil
	}
	if o.planned, err = source.(status.Adopter).PlanAdoption(&found); err != nil {
		return err
	}
	return agent.Adopt(o.config, found)
}

// write writes the cpusets that the other agent wrote past the runtime.
func (o *takingOver) write(r *sim.Runtime) error {
	_, all := r.ListForSynchronize()
	for _, c := range r.Containers() {
		i := slices.IndexFunc(all, func(l *nriapi.Container) bool { return l.GetId() == c.ID })
		cpus, is := o.node.Kernel[c.Ref]
		if !is {
			continue
		}
		file := strings.TrimPrefix(all[i].GetLinux().GetCgroupsPath(), "/") + "/cpuset.cpus"
		if o.node.Scenario.Node.Cgroup == "v1" {
			file = "cpuset/" + file
		}
		if err := o.kernel.WriteFile(file, []byte(cpus)); err != nil {
			return err
		}
	}
	return nil
}

// cpusOf reads the CPUs of all containers.
func cpusOf(r *sim.Runtime) map[scenario.Ref]string {
	out := map[scenario.Ref]string{}
	for _, c := range r.Containers() {
		s, err := r.State(c.Ref)
		out[c.Ref] = fmt.Sprintf("%s mem %s", s.CPUs, s.Mems)
		if err != nil {
			out[c.Ref] = err.Error()
		}
	}
	return out
}

// run plays the node. What a start changes is compared afterwards.
func (o *takingOver) run(t *testing.T, attach string) {
	t.Helper()
	r := o.options(t, attach)
	err := sim.Run(t.Context(), &o.node.Scenario, r)
	if unmet := (*sim.UnmetError)(nil); errors.As(err, &unmet) {
		err = nil
		for _, w := range unmet.Wants {
			if !strings.Contains(w, "the restart changed") {
				err = unmet
			}
		}
	}
	if err = errors.Join(o.failed, err); err != nil {
		t.Fatal(err)
	}
	if len(o.cpus) != 3 {
		t.Fatalf("%d states instead of 3", len(o.cpus))
	}
}

// check compares what containers have before, and after both starts, with what the dry look said.
func (o *takingOver) check(t *testing.T) {
	t.Helper()
	before, after := o.cpus[0], o.cpus[1]
	if d := cmp.Diff(after, o.cpus[2]); d != "" {
		t.Errorf("the second start moves containers: %s", d)
	}
	if len(o.planned.Containers) != len(before) || o.planned.Moves != len(o.node.Moves) {
		t.Errorf("the dry look has %d containers and %d moves instead of %d and %d", len(o.planned.Containers), o.planned.Moves, len(before), len(o.node.Moves))
	}
	for _, c := range o.planned.Containers {
		ref := scenario.Ref(c.Pod + "/" + c.Container)
		reason, moves := o.node.Moves[ref]
		if c.Unchanged == moves || !strings.Contains(c.Why, reason) {
			t.Errorf("%s: the dry look says keeps=%t (%s to %s), because %q; wanted keeps=%t and %q", ref, c.Unchanged, c.CPUsNow, c.CPUsAfter, c.Why, !moves, reason)
		}
		has, gets := strings.Fields(before[ref])[0], strings.Fields(after[ref])[0]
		if has != c.CPUsNow || gets != c.CPUsAfter {
			t.Errorf("%s: the dry look says CPUs %s to %s, and they are %s to %s", ref, c.CPUsNow, c.CPUsAfter, has, gets)
		}
		if moved := before[ref] != after[ref]; moved != moves {
			t.Errorf("%s: CPUs %s before and %s after", ref, before[ref], after[ref])
		}
	}
	if d := cmp.Diff(o.node.Owns, o.owners()); d != "" {
		t.Errorf("owners differ (-want +got): %s", d)
	}
	for _, note := range o.node.Balloons.Differences(o.balloons) {
		t.Error(note)
	}
	if _, err := os.Stat(filepath.Join(o.config.Paths.State, "adopt.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file of the takeover is still there: %v", err)
	}
}

// owners returns the CPUs that containers own, as the agent reports them.
func (o *takingOver) owners() map[scenario.Ref]string {
	owns := map[scenario.Ref]string{}
	for ref, c := range o.reported {
		if c.CPUGroup == "exclusive" {
			owns[ref] = c.CPUs
		}
	}
	return owns
}

// TestAdopt: nodes as other agents leave them are taken over, and started again. No container moves that may stay, each
// that moves has a reason, and the dry look says both before.
func TestAdopt(t *testing.T) {
	t.Parallel()
	for name := range leftNodes(t) {
		for _, attach := range []string{"nri", "bypass"} {
			for _, v := range []string{"v2", "v1"} {
				t.Run(name+"/"+attach+"-"+v, func(t *testing.T) {
					t.Parallel()
					n := leftNodes(t)[name]
					n.Scenario.Node.Cgroup = v
					o := &takingOver{node: n, reads: true}
					o.run(t, attach)
					o.check(t)
				})
				if attach != "nri" || v == "v1" {
					continue
				}
				t.Run(name+"/not read", func(t *testing.T) {
					t.Parallel()
					o := &takingOver{node: leftNodes(t)[name]}
					o.run(t, attach)
					if stays := cmp.Equal(o.node.Owns, o.owners()) && cmp.Equal(o.cpus[0], o.cpus[1]); stays != o.node.Stays {
						t.Errorf("everything stays although nothing was read: %t, wanted %t", stays, o.node.Stays)
					}
				})
			}
		}
	}
}
