package cpumap

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/report/api"
)

// TestMissing: the legend names an owner's CPUs that are offline.
func TestMissing(t *testing.T) {
	c := api.NodeCPUs{Online: "0-2", Grants: []api.Grant{{Pod: "d/db", CPUs: "1-2", Unusable: "3"}, {Pod: "d/late", Unusable: "4-5"}}}
	var said []string
	for _, o := range New(c).legend {
		said = append(said, o.text)
	}
	if all := strings.Join(said, "; "); !strings.Contains(all, "d/db alone: 1-2, missing 3") || !strings.Contains(all, "d/late alone: none, missing 4-5") {
		t.Errorf("the legend says %q", all)
	}
}

func TestTextOfLargeNode(t *testing.T) {
	c := api.NodeCPUs{Online: "0-199", Shared: "0-199", Nodes: []api.NUMA{{ID: 0, CPUs: "0-199"}}}
	for i := range 30 {
		pod := string(rune('a'+i%26)) + string(rune('a'+i/26))
		c.Grants = append(c.Grants, api.Grant{Pod: pod, CPUs: []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9",
			"10", "11", "12", "13", "14", "15", "16", "17", "18", "19", "20", "21", "22", "23", "24", "25", "26", "27", "28", "29"}[i]})
	}
	var b bytes.Buffer
	New(c).Text(&b, c)
	for _, line := range strings.Split(b.String(), "\n") {
		if len([]rune(line)) > 100 {
			t.Errorf("line of %d columns", len([]rune(line)))
		}
	}
	if !strings.Contains(b.String(), "* ") {
		t.Error("more owners than letters, and no mark for the rest")
	}
}

// TestBalloons: the CPUs of balloons are in no other pool, and reserved CPUs stay reserved.
func TestBalloons(t *testing.T) {
	got := Marks(api.NodeCPUs{Online: "0-7", Shared: "0-7", Reclaimed: "0-7", Reserved: "0", Pools: []api.Pool{
		{Name: "shared", Class: "shared", CPUs: "0-7"}, {Name: "balloon reserved[0]", Class: "balloon", CPUs: "0"}, {Name: "balloon db[0]", Class: "balloon", CPUs: "2-3"},
	}})
	want := []Mark{{Mark: "#", CPUs: []int{0}}, {Mark: "·", CPUs: []int{1, 4, 5, 6, 7}}, {Mark: "b", CPUs: []int{2, 3}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
