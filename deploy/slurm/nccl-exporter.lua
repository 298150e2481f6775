-- SPDX-License-Identifier: Apache-2.0
-- Lmod module for sites that leave the choice to the user: module load nccl-exporter
help([[Measures the NCCL collectives of what is started from now on; the node's nccl-exporter serves them to Prometheus.]])
whatis("Name: nccl-exporter")
whatis("Description: metrics of NCCL collectives")
setenv("NCCL_PROFILER_PLUGIN", "/usr/lib/nccl-exporter/libnccl-profiler-exporter.so")
setenv("NCCL_EXPORTER_DIR", "/run/nccl-exporter")
