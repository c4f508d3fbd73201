package intent

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestPreemptable: rubik reads an annotation or a label; the annotation has priority.
func TestPreemptable(t *testing.T) {
	for _, c := range []struct {
		name              string
		annotation, label string
		want              string // offline, online or ""
		class             Class
		problems          int
	}{
		{name: "nothing"},
		{name: "annotation", annotation: "true", want: rubikOffline, class: Reclaimed},
		{name: "label", label: "true", want: rubikOffline, class: Reclaimed},
		{name: "both", annotation: "true", label: "true", want: rubikOffline, class: Reclaimed},
		{name: "online", annotation: "false", want: rubikOnline, class: Shared},
		{name: "contradictory", annotation: "false", label: "true", want: rubikOnline, class: Shared, problems: 1},
		{name: "contradictory the other way", annotation: "true", label: "false", want: rubikOffline, class: Reclaimed, problems: 1},
		{name: "capitals", annotation: "True", problems: 1},
		{name: "a number", annotation: "1", problems: 1},
		{name: "space", annotation: "true ", problems: 1},
		{name: "a bad annotation and a good label", annotation: "yes", label: "true", problems: 2},
		{name: "control characters", label: "true\x00", problems: 1},
	} {
		p := &lifecycle.Pod{Labels: map[string]string{}, Annotations: map[string]string{}}
		if c.annotation != "" {
			p.Annotations[RubikPreemptable] = c.annotation
		}
		if c.label != "" {
			p.Labels[RubikPreemptable] = c.label
		}
		got := Read(p, nil, Dialects())
		if got.ClassName != c.want || got.Class.V != c.class || len(got.Problems) != c.problems || got.Preemptable.IsSet() != (c.want != "") {
			t.Errorf("%s: %q, %v, %+v, %v", c.name, got.ClassName, got.Class, got.Preemptable, got.Problems)
		}
		if got.Silent() != (c.want == "") {
			t.Errorf("%s: silent is %v", c.name, got.Silent())
		}
	}
}

// TestTwoDialects: the first dialect in the configuration has priority, and only the report is left of the
// other.
func TestTwoDialects(t *testing.T) {
	pod := &lifecycle.Pod{Labels: map[string]string{KoordQoSClass: "LS", RubikPreemptable: "true"}}
	for _, c := range []struct {
		order  []string
		class  Class
		yields bool
		key    string
	}{
		{[]string{"koordinator", "rubik"}, Shared, false, RubikPreemptable},
		{[]string{"rubik", "koordinator"}, Reclaimed, true, KoordQoSClass},
	} {
		got := Read(pod, nil, c.order)
		if got.Class.V != c.class || got.Preemptable.V != c.yields || len(got.Problems) != 1 || got.Problems[0].Key != c.key {
			t.Errorf("%v: %v, %+v, %v", c.order, got.Class, got.Preemptable, got.Problems)
		}
	}
	pod.Labels[KoordQoSClass] = "BE"
	if got := Read(pod, nil, []string{"koordinator", "rubik"}); got.ClassName != "BE" || !got.Preemptable.V || len(got.Problems) != 0 {
		t.Errorf("two that agree: %q, %+v, %v", got.ClassName, got.Preemptable, got.Problems)
	}
}

// TestRubikFollowed: a source of specs also reports current labels and annotations, and a key that was
// removed counts as not requested.
func TestRubikFollowed(t *testing.T) {
	pod := &lifecycle.Pod{Annotations: map[string]string{RubikPreemptable: "true", RubikBurst: "1000"}}
	spec := &lifecycle.PodSpec{Meta: &lifecycle.PodMeta{Labels: map[string]string{RubikPreemptable: "false"}}}
	for _, c := range []struct {
		name string
		spec *lifecycle.PodSpec
		want string
		said bool
	}{
		{"nobody tells", nil, rubikOffline, true},
		{"a spec without them", &lifecycle.PodSpec{}, rubikOffline, true},
		{"changed", spec, rubikOnline, false},
		{"taken away", &lifecycle.PodSpec{Meta: &lifecycle.PodMeta{}}, "", false},
	} {
		if got := Read(pod, c.spec, Dialects()); got.ClassName != c.want || got.Burst.IsSet() != c.said {
			t.Errorf("%s: %q, %+v", c.name, got.ClassName, got.Burst)
		}
	}
}

func TestRubikBurst(t *testing.T) {
	for text, want := range map[string]int64{
		"": -1, "0": 0, "2000": 2000, "17592186044415": maxBurstMicros, "17592186044416": -1, "-1": -1, "2ms": -1, "1e3": -1, "+5": -1, "007": -1, " 5": -1, "٣": -1,
	} {
		got := Read(&lifecycle.Pod{Annotations: map[string]string{RubikBurst: text}}, nil, Dialects())
		if got.Burst.IsSet() != (want >= 0) || want >= 0 && got.Burst.V != want || (len(got.Problems) == 0) != (want >= 0 || text == "") {
			t.Errorf("%q: %+v, %v", text, got.Burst, got.Problems)
		}
	}
}

func TestRubikCacheLimit(t *testing.T) {
	for text, want := range map[string]string{"low": "low", "middle": "middle", "high": "high", "max": "max", "dynamic": "low", "static": "", "LOW": ""} {
		got := Read(&lifecycle.Pod{Annotations: map[string]string{RubikCacheLimit: text}}, nil, Dialects())
		told := len(got.Problems) == 1
		if got.CacheLevel.V != want || told != (want == "" || text == "dynamic") {
			t.Errorf("%q: %+v, %v", text, got.CacheLevel, got.Problems)
		}
	}
}

// TestRubikBlkioLimit: any error means no limit at all.
func TestRubikBlkioLimit(t *testing.T) {
	for _, c := range []struct {
		text     string
		want     []DiskLimit
		problems int
	}{
		{
			`{"device_read_bps":[{"device":"/dev/sda","value":"1048576"},{"device":"8:16","value":"2097152"}],"device_write_iops":[{"device":"sda","value":"5"}]}`,
			[]DiskLimit{{Disk: "8:16", ReadBPS: 2 << 20}, {Disk: "sda", ReadBPS: 1 << 20, WriteIOPS: 5}}, 0,
		},
		{`{"device_write_bps":[{"device":"sda","value":"0"}]}`, []DiskLimit{{Disk: "sda"}}, 0},
		{`{"device_write_bps":[{"device":"sda","value":1000}]}`, []DiskLimit{{Disk: "sda", WriteBPS: 1000}}, 0},
		{`{"device_write_bps":[{"device":"sda","value":"5"},{"device":"/dev/sda","value":"6"}]}`, nil, 1},
		{`{"device_write_bps":[{"device":"sda","value":"-5"}]}`, nil, 1},
		{`{"device_write_bps":[{"device":"sda"}]}`, nil, 1},
		{`{"device_write_bps":[{"device":"../sda;","value":"5"}]}`, nil, 1},
		{`{"device_read_iops":[{"device":"sda","value":"4294967296"}]}`, nil, 1},
		{`{"device_read_iops":[` + strings.Repeat(`{"device":"8:0","value":"1"},`, 200) + `{"device":"8:0","value":"1"}]}`, []DiskLimit{{Disk: "8:0", ReadIOPS: 1}}, 0},
		{`{"device_read_bps":{}}`, nil, 1},
		{`[]`, nil, 1},
		{`{}`, nil, 0},
	} {
		got := Read(&lifecycle.Pod{Annotations: map[string]string{RubikBlkioLimit: c.text}}, nil, Dialects())
		if diff := cmp.Diff(c.want, got.Disks.V); diff != "" || len(got.Problems) != c.problems {
			t.Errorf("%.120s: %s, %v", c.text, diff, got.Problems)
		}
	}
}

func TestRubikNotSupported(t *testing.T) {
	got := Read(&lifecycle.Pod{Annotations: map[string]string{RubikQuotaTurbo: "true", RubikCPI: "online"}}, nil, Dialects())
	if len(got.Problems) != 2 || !got.Problems[0].Unserved || !got.Problems[1].Unserved || !got.Silent() {
		t.Errorf("%+v", got.Problems)
	}
}

// TestMemoryProtection: memory is protected only for pods that a rule allows.
func TestMemoryProtection(t *testing.T) {
	pod := Read(&lifecycle.Pod{Annotations: map[string]string{RubikPreemptable: "false"}}, nil, Dialects())
	rules := Rules{{Kinds: []Kind{MemoryProtection}, Namespaces: []string{"prod"}, Decision: Allow, Name: "rule 1"}}
	if got := rules.Authorise(pod, "prod"); got.ProtectionRefusedBy != "" {
		t.Errorf("refused by %s where rule 1 allows it", got.ProtectionRefusedBy)
	}
	if got := rules.Authorise(pod, "shop"); got.ProtectionRefusedBy == "" || len(got.Problems) != 0 {
		t.Errorf("%q, %v: want it refused, and told only where something would be kept", got.ProtectionRefusedBy, got.Problems)
	}
	none := Rules{{Kinds: []Kind{Preemption, BurstKind, CacheLimit}, Namespaces: []string{"*"}, Decision: Refuse, Name: "rule 1"}}
	all := Read(&lifecycle.Pod{Annotations: map[string]string{RubikPreemptable: "true", RubikBurst: "5", RubikCacheLimit: "low"}}, nil, Dialects())
	if got := none.Authorise(all, "shop"); got.Preemptable.IsSet() || got.Burst.IsSet() || got.CacheLevel.IsSet() || len(got.Problems) != 3 {
		t.Errorf("%+v", got)
	}
}
