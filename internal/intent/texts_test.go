package intent

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/test/clock"
	"github.com/trimtab/trimtab/test/hostile"
)

// TestOneReader: only texts.go, which has the bounds, reads labels and annotations of a pod. A key that is
// read elsewhere has no bounds.
func TestOneReader(t *testing.T) {
	for _, dir := range []string{".", "../hook", "../engine", "../placement"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatal(dir, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") || file == "texts.go" || file == "../engine/former.go" {
				continue // former.go hands on what texts.go has bounded before
			}
			for _, at := range readsTexts(t, file) {
				t.Errorf("%s reads a pod's labels or annotations past the bounds of intent's texts.go", at)
			}
		}
	}
	if len(readsTexts(t, "texts.go")) == 0 {
		t.Error("the test sees nobody read them")
	}
}

// readsTexts returns where a file reads labels or annotations.
func readsTexts(t *testing.T, file string) []token.Position {
	t.Helper()
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []token.Position
	ast.Inspect(f, func(n ast.Node) bool {
		if call, is := n.(*ast.CallExpr); is {
			fn, _ := call.Fun.(*ast.SelectorExpr)
			if fn != nil && fn.Sel.Name == "AnnotationsForHooks" { // which has its own bounds
				return false
			}
		}
		s, is := n.(*ast.SelectorExpr)
		if is && (s.Sel.Name == "Annotations" || s.Sel.Name == "Labels") {
			out = append(out, set.Position(s.Pos()))
		}
		return true
	})
	return out
}

// TestEveryTextIsBounded: a text that is too long is reported and not read, for every key.
func TestEveryTextIsBounded(t *testing.T) {
	keys := map[string]string{
		KoordResourceStatus: `{"cpuset":"1"}`, KoordResourceSpec: `{}`, KoordExtended: `{"containers":{"a":{}}}`, KoordDevices: `{"gpu":[{"minor":0}]}`,
		KoordResctrl: `{"mb":{"schemata":{"percent":5}}}`, KoordBlkioQoS: `{"blocks":[{"name":"sda","type":"device"}]}`, KoordOOMScore: "1", KoordOOMScoreSpec: `{"a":1}`,
		KatalystQoSLevel: "shared_cores", KatalystCPU: `{"a":"b"}`, KatalystMemory: `{"a":"b"}`, KatalystNetwork: `{"a":"b"}`,
		KatalystBindResult: "1", KatalystNUMANumber: "1", KatalystNUMAIDs: "1",
		RubikPreemptable: "true", RubikBurst: "1", RubikBlkioLimit: `{"device_read_bps":[{"device":"sda","value":1}]}`, RubikCacheLimit: "low",
		TrimtabHugepages: `{"a":{"hugepages-2Mi":"2Mi"}}`, TrimtabCDIDevices: `{"a":{"b.c/d":1}}`, TrimtabCPUEnv: "true", TrimtabBlockIOClass: "a", TrimtabRDTClass: "a",
		TrimtabUnsetQuota: "true", TrimtabCoreType: "efficient", TrimtabIsolated: "true",
	}
	for key, text := range keys {
		if got := read(nil, map[string]string{key: text}); got.Silent() && len(got.Problems) == 0 {
			t.Errorf("%s: %s is not read", key, text)
		}
		long := text + strings.Repeat(" ", lifecycle.MaxValueBytes)
		got := read(nil, map[string]string{key: long})
		if !got.Silent() || len(got.Problems) != 1 || !strings.HasPrefix(got.Problems[0].Reason, "the text is longer than 16384 bytes") || got.Problems[0].Key != key {
			t.Errorf("%s of %d bytes: silent %v, %v", key, len(long), got.Silent(), got.Problems)
		}
	}
	for _, label := range []string{KoordQoSClass, KoordCoreSchedGroup, KoordCoreSchedPolicy, RubikPreemptable} {
		got := read(map[string]string{label: strings.Repeat("a", lifecycle.MaxValueBytes+1)}, nil)
		if !got.Silent() || len(got.Problems) != 1 || !strings.HasPrefix(got.Problems[0].Reason, "the text is longer than") {
			t.Errorf("label %s: %v", label, got.Problems)
		}
	}
}

// TestTextsAreBoundedTogether: many texts that are each within the bound of one text do not exceed the
// total bound.
func TestTextsAreBoundedTogether(t *testing.T) {
	half := strings.Repeat(" ", maxTexts/2-20)
	many := `{"x":[` + strings.Repeat("0,", maxValues-10) + `0]}`
	for name, c := range map[string]struct {
		annotations map[string]string
		want        string
	}{
		"bytes": {map[string]string{
			KatalystCPU: half + `{}`, KatalystMemory: half + `{}`, KatalystNetwork: half + `{}`,
		}, "too long: the agent reads at most 32768 bytes"},
		"values":      {map[string]string{KoordResourceStatus: many, KoordExtended: many}, "too many JSON values: the agent reads at most 768"},
		"a long name": {map[string]string{KoordExtended: `{"` + strings.Repeat("n", maxMemberName+1) + `":0}`}, "a name longer than 512 bytes"},
	} {
		got := read(nil, c.annotations)
		if len(got.Problems) != 1 || !strings.Contains(got.Problems[0].Reason, c.want) {
			t.Errorf("%s: %v, want one that says %q", name, got.Problems, c.want)
		}
	}
}

// TestRepeatedTextCountsOnce: a text that the spec repeats, and one that two readers use, does not count
// twice.
func TestRepeatedTextCountsOnce(t *testing.T) {
	t1 := podTextsOf(pod(nil, map[string]string{KoordDevices: strings.Repeat("x", 1000)}), nil)
	for range 100 {
		t1.annotation(KoordDevices)
	}
	if t1.bytes != maxTexts-1000 {
		t.Errorf("%d bytes are left of %d", t1.bytes, maxTexts)
	}
}

// The most that reading one pod may allocate: less than a millisecond of work.
const (
	mostAllocations = 10_000
	mostAllocated   = 600 << 10
)

// TestWorstPod: no pod that the API server accepts costs more than that, and no text takes long without
// allocating.
func TestWorstPod(t *testing.T) {
	keys := hostile.Keys()
	for _, p := range hostile.Pods(lifecycle.MaxValueBytes) {
		size := 0
		for k, v := range p.Annotations {
			size += len(k) + len(v)
		}
		if size > hostile.MaxAnnotationBytes {
			t.Fatalf("%s: %d bytes of annotations are not accepted by the API server", p.Name, size)
		}
		pod := &lifecycle.Pod{Labels: p.Labels, Annotations: p.Annotations}
		end := clock.Watch(t, size/10)
		reading := func() { Rules{}.Authorise(Read(pod, nil, Dialects()), "default") }
		allocs, bytes := cost(reading)
		for more := 0; more < 4 && bytes > mostAllocated; more++ { // pools drop buffers at random under the race detector
			_, again := cost(reading)
			bytes = min(bytes, again)
		}
		end()
		if allocs > mostAllocations || bytes > mostAllocated {
			t.Errorf("%s: %d allocations, %d bytes", p.Name, allocs, bytes)
		}
	}
	for _, d := range Dialects() {
		if d != "kubernetes" && !slices.ContainsFunc(keys, func(k string) bool {
			return !read(nil, map[string]string{k: "\x00"}).Silent() || len(read(nil, map[string]string{k: "\x00"}).Problems) > 0
		}) {
			t.Errorf("no pod has a text for dialect %s", d)
		}
	}
}
