package conductor_test

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/cpuclass"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/placement/balloons"
	"github.com/trimtab/trimtab/internal/placement/balloons/pick"
	"github.com/trimtab/trimtab/internal/sim/kernel"
)

// classStage is a node with balloons: the administrator gave the CPUs of one type, which matches no
// pod by itself, the class fast, and other pods the class slow.
func classStage(t testing.TB) (s *stage, files *kernel.CPUFiles) {
	t.Helper()
	s = newStage(t, cgroup.V2, false)
	files = kernel.NewCPUFiles(kernel.CPUHardware{}, s.all)
	w, err := cpuclass.New(cpuclass.Options{Files: files, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	s.classes = w
	s.policy.Placement = balloons.New(s.machine, pick.New(s.machine), balloons.PolicyOptions{
		CPUClasses: []balloons.CPUClassOptions{
			{Name: "fast", MinFreq: "turbo", FreqGovernor: "performance", DisabledCStates: []string{"C6"}},
			{Name: "slow", MaxFreq: "1GHz", EnergyPerformancePreference: "power"},
		},
		BalloonTypes: []balloons.TypeOptions{{Name: "fast", CPUClass: "fast"}, {Name: "slow", CPUClass: "slow", Namespaces: []string{"*"}}},
	})
	s.restart()
	return s, files
}

// classesAfter plays a pod and returns the texts of all files of CPUs.
func classesAfter(t testing.TB, s *stage, files *kernel.CPUFiles, a attack, speak bool) map[string]string {
	t.Helper()
	if _, err := s.run(a, speak); err != nil {
		t.Fatal(err)
	}
	conductor.GiveCPUClasses(s.con)
	now := maps.Clone(files.Texts())
	s.restart()
	conductor.GiveCPUClasses(s.con)
	if diff := cmp.Diff(now, files.Texts()); diff != "" {
		t.Error("a restart changed files of CPUs", diff)
	}
	return now
}

// TestHostileCPUClasses plays each attack on a node whose balloon types have CPU classes, and the same
// pod without labels and annotations. The files of all CPUs must be the same: no request names a
// class, or reaches its files.
func TestHostileCPUClasses(t *testing.T) {
	t.Parallel()
	for _, a := range attacks() {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			meek, meekFiles := classStage(t)
			want := classesAfter(t, meek, meekFiles, a, false)
			s, files := classStage(t)
			if diff := cmp.Diff(want, classesAfter(t, s, files, a, true)); diff != "" {
				t.Error("the pod changed files of CPUs", diff)
			}
		})
	}
}

// TestHostileCPUClassesCanFail: where a rule lets a pod name a balloon type, the pod's CPUs have the
// class that the administrator gave that type, and no other CPU has it.
func TestHostileCPUClassesCanFail(t *testing.T) {
	t.Parallel()
	s, files := classStage(t)
	before := maps.Clone(files.Texts())
	got := classesAfter(t, s, files, attack{namespace: "trusted", pod: "q", annotations: nri(intent.NRIBalloon, "fast")}, true)
	changed := 0
	for file, text := range got {
		if text != before[file] && text == "performance" {
			changed++
		}
	}
	if changed == 0 || changed > 4 { // governor and energy preference of two CPUs
		t.Errorf("%d files show performance", changed)
	}
}
