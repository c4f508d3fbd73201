package adopt

import (
	"encoding/json"
	"fmt"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// parseKoordinatorPod reads the CPUs that koord-scheduler assigned to a pod, and that koordlet gives to the pod's
// containers. The result lacks Koordinator's share pools, on which other pods run, because only the API server has
// them.
func parseKoordinatorPod(p *lifecycle.Pod) ([]lifecycle.FormerContainer, error) {
	row := lifecycle.FormerContainer{PodUID: p.UID, Class: p.Labels[intent.KoordQoSClass], Where: "label " + intent.KoordQoSClass}
	if text := p.Annotations[intent.KoordResourceStatus]; text != "" {
		var state struct {
			CPUSet string `json:"cpuset"`
		}
		err := json.Unmarshal([]byte(text), &state)
		if err == nil {
			row.CPUs, err = normalizeList(state.CPUSet)
		}
		if err != nil {
			return nil, fmt.Errorf("annotation %s: %w", intent.KoordResourceStatus, err)
		}
		if row.CPUs != "" {
			row.Exclusive, row.Where = true, "annotation "+intent.KoordResourceStatus
		}
	}
	if row.CPUs+row.Class == "" {
		return nil, nil
	}
	return []lifecycle.FormerContainer{row}, nil
}

// parseRubikPod reports the class "offline" for a pod that gives way to other pods under rubik. For other pods it
// reports nothing. rubik assigns no CPUs to containers.
func parseRubikPod(p *lifecycle.Pod) ([]lifecycle.FormerContainer, error) {
	if p.Annotations[intent.RubikPreemptable] != "true" && p.Labels[intent.RubikPreemptable] != "true" {
		return nil, nil
	}
	return []lifecycle.FormerContainer{{PodUID: p.UID, Class: "offline", Where: intent.RubikPreemptable}}, nil
}
