package agent

import (
	"testing"

	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/hook"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

// TestRatioIsValidatedAsItIsRead: the hook can parse exactly the ratios that the configuration accepts.
func TestRatioIsValidatedAsItIsRead(t *testing.T) {
	m, err := describe.Parse("1s x 1n x 2c")
	if err != nil {
		t.Fatal(err)
	}
	for text, ok := range map[string]bool{
		"1": true, "1.2": true, "1.20": true, "0.9": true, "0.01": true, "100": true, "100.00": true, "99.99": true,
		"": false, "0": false, "0.0": false, "-1": false, "1.234": false, "101": false, "100.01": false, "x": false, "1e2": false,
	} {
		c := config.Default()
		c.Hooks.Normalization = hook.NormalizationOptions{Enabled: true, Ratio: text}
		if valid := config.Validate(c) == nil; valid != ok {
			t.Errorf("%q: valid is %v", text, valid)
		}
		if _, err := policyOf(c, m, node{}); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}
