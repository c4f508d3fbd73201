package hook

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestCPUEnv: the variables of owners, pools and quotas, and the variables that are not changed.
func TestCPUEnv(t *testing.T) {
	quota := func(us int64, period uint64) *lifecycle.Resources {
		r := &lifecycle.Resources{}
		r.CPU.Quota = lifecycle.Some(us)
		if period > 0 {
			r.CPU.Period = lifecycle.Some(period)
		}
		return r
	}
	decided := func(us int64) []lifecycle.Value { return []lifecycle.Value{{Field: lifecycle.CPUQuota, Int: us}} }
	owner := Creation{OwnedCPUs: "2-5", CPUs: 4}
	for _, c := range []struct {
		name    string
		made    Creation
		asked   *lifecycle.Resources
		pod     *lifecycle.Resources
		decided []lifecycle.Value
		want    map[string]string
	}{
		{"an owner", owner, quota(400000, 0), quota(400000, 0), nil, map[string]string{"LIST": "2-5", "COUNT": "4"}},
		{"an owner whose quota stays", owner, quota(150000, 0), nil, nil, map[string]string{"LIST": "2-5", "COUNT": "2"}},
		{"an owner whose quota is lifted", owner, quota(150000, 0), nil, decided(-1), map[string]string{"LIST": "2-5", "COUNT": "4"}},
		{"in a pool", Creation{CPUs: 6}, quota(0, 0), nil, nil, map[string]string{"COUNT": "6"}},
		{"in a pool, limited", Creation{CPUs: 6}, quota(100001, 0), nil, nil, map[string]string{"COUNT": "2"}},
		{"limited over another period", Creation{CPUs: 6}, quota(25000, 10000), nil, nil, map[string]string{"COUNT": "3"}},
		{"limited to more than there is", Creation{CPUs: 6}, quota(900000, 0), nil, nil, map[string]string{"COUNT": "6"}},
		{"what is decided counts", Creation{CPUs: 6}, quota(900000, 0), nil, decided(50000), map[string]string{"COUNT": "1"}},
		{"its pod is limited", Creation{CPUs: 6}, &lifecycle.Resources{}, quota(200000, 0), nil, map[string]string{"COUNT": "2"}},
		{"its pod's limit is lifted", Creation{CPUs: 6, PodValues: decided(-1)}, &lifecycle.Resources{}, quota(200000, 0), nil, map[string]string{"COUNT": "6"}},
		{"it sets one itself", Creation{CPUs: 6, Env: []string{"COUNT=", "LISTS=0"}, OwnedCPUs: "1"}, &lifecycle.Resources{}, nil, nil, map[string]string{"LIST": "1"}},
		{
			"a hook set one", Creation{CPUs: 6, OwnedCPUs: "1"}, &lifecycle.Resources{}, nil,
			[]lifecycle.Value{{Field: lifecycle.Env, Key: "LIST", Text: "x"}}, map[string]string{"COUNT": "6"},
		},
	} {
		h := CPUEnv{Defaults: []intent.CPUVariable{{Name: "LIST", List: true}, {Name: "COUNT"}}}
		in := &Input{
			Container: "main", Pod: &lifecycle.Pod{Resources: c.pod}, Pristine: c.asked, Creation: &c.made,
			Intent: &intent.Pod{CPUEnv: intent.Sourced[intent.CPUVariables]{V: intent.CPUVariables{Defaults: true}, Key: intent.TrimtabCPUEnv}},
		}
		out := Output{Values: c.decided}
		h.Propose(in, &out)
		got := map[string]string{}
		for _, v := range out.Values[len(c.decided):] {
			if v.Field != lifecycle.Env || v.Why.Hook != "cpuEnv" || v.Why.Text == "" {
				t.Errorf("%s: %+v", c.name, v)
			}
			got[v.Key] = v.Text
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
		if diff := cmp.Diff(c.want, out.CPUEnv); diff != "" {
			t.Errorf("%s, kept: %s", c.name, diff)
		}

		// Later it has its first value, whatever the container has by then.
		in.Creation, in.CPUEnv, in.Pristine = nil, out.CPUEnv, quota(1000, 0)
		later := Output{Values: decided(1000)}
		h.Propose(in, &later)
		if len(later.Values)-1 != len(got) || later.CPUEnv != nil {
			t.Errorf("%s, later: %+v", c.name, later)
		}
		for _, v := range later.Values[1:] {
			if got[v.Key] != v.Text {
				t.Errorf("%s, later: %s is %q, was %q", c.name, v.Key, v.Text, got[v.Key])
			}
		}
	}
}
