package agent

import (
	"slices"
	"testing"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/report/api"
)

func TestSharingHints(t *testing.T) {
	planned := []api.Container{{Pod: "shop/web", Name: "web", CPUGroup: "rest"}, {Pod: "shop/api", Name: "main", CPUGroup: "shared"}}
	for name, c := range map[string]struct {
		config string
		want   []string
	}{
		"leftover":           {"placement: {policy: pools, reclaim: leftover}", []string{"shop/web/web: a container without a class also runs on the CPUs of batch work: give the pod the label koordinator.sh/qosClass: LS, or set hooks.cpuset.unlabelled: shared"}},
		"together":           {"placement: {policy: pools}", nil},
		"the kubelet's CPUs": {"authority: kubelet\nplacement: {policy: pools, reclaim: leftover}", nil},
		"without cpuset":     {"hooks: {cpuset: {enabled: false}}\nplacement: {policy: pools, reclaim: leftover}", nil},
	} {
		t.Run(name, func(t *testing.T) {
			conf, err := config.Parse("f", []byte("apiVersion: trimtab.io/v1alpha1\nkind: Config\n"+c.config+"\n"))
			if err != nil {
				t.Fatal(err)
			}
			if got := sharingHints(conf, planned); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestListed(t *testing.T) {
	for want, names := range map[string][]string{
		"a":                        {"a"},
		"a, b, c, d, e":            {"a", "b", "c", "d", "e"},
		"a, b, c, d, and 2 others": {"a", "b", "c", "d", "e", "f"},
	} {
		if got := shortList(names); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
