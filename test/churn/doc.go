// Package churn creates and removes a thousand containers of every class on a described node of 256 CPUs, through the
// NRI attachment under policy pools. At every write to the kernel it checks the cpusets of all containers: I1, I2 and
// I4. TestStorm does so on a smaller node while the agent's file and socket calls fail.
package churn
