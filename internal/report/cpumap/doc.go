// Package cpumap draws the CPUs of a node. A mark, which is one character, shows who may use a CPU: the pod that owns
// the CPU, or the containers of a pool. The drawings are text (Map), tiles on a terminal (Tiles), text with the load of
// the CPUs (LoadLines), and SVG.
package cpumap
