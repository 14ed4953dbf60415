# What Triton takes of memory, for the adapter: sh -c THIS triton-memory FILE REPOSITORY [CGROUP], run by Triton's own shell.
# Lines: memory UPTIME BYTES LIMIT OOM_KILLS. If asked, processes of python models: stub PID KIB MODEL, 20 in turn; later and others.
set -C # nothing that is there is written to, nor what a link leads to
file=$1 models=$2/ group=${3:-/sys/fs/cgroup} alive=" "
sum() { # of two names' numbers in a file
  sum=0; while read -r name number unit; do case $name in "$2" | "$3") sum=$((sum + number)) ;; esac; done <"$1"
}
tell() {
  read -r now rest </proc/uptime
  if [ -f "$group/memory.max" ]; then stat=memory.stat names="anon shmem" limit=memory.max events=memory.events
  else stat=memory/memory.stat names="total_rss total_shmem" limit=memory/memory.limit_in_bytes events=memory/memory.oom_control; fi
  sum "$group/$stat" $names && used=$sum && read -r limit <"$group/$limit" && sum "$group/$events" oom_kill oom_kill || return
  echo "memory $now $used $limit $sum"; [ "$file.asked" -nt "$file" ] || return 0
  found=" " later=" " told="" left=20; for process in /proc/[0-9]*; do
    read -r name <"$process/comm" && [ "$name" = triton_python_b ] || continue
    found="$found$process "; case $alive in *" $process "*) ;; *) alive=" $process$alive" ;; esac # new ones first
  done
  for process in $alive; do # then those that were told longest ago
    case $found in *" $process "*) [ $left -gt 0 ] || { later="$later$process "; continue; } ;; *) continue ;; esac
    words=""; IFS="" read -r words <"$process/cmdline"
    case $words in *"$models"*/*) words=${words#*"$models"} ;; *) continue ;; esac
    sum "$process/smaps_rollup" Pss_Anon: Pss_Shmem: && echo "stub ${process#/proc/} $sum ${words%%/*}" || continue
    left=$((left - 1)) told="$told$process "
  done
  alive=$later$told; echo "later$later"
}
while kill -0 "$PPID"; do
  { tell >"$file.new" && mv -f "$file.new" "$file"; } || rm -f "$file.new"
  sleep 0.5; for pause in 2 2; do [ "$file.asked" -nt "$file" ] || sleep $pause; done
done 2>/dev/null
