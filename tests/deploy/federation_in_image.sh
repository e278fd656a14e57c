# In the image, as its user: both servers, a recommender and a silo of twenty people, one period.
set -eu
services=
trap 'kill $services 2> /dev/null || true' EXIT
wait_for() { n=0; until "$@" > /dev/null 2>&1; do n=$((n + 1)); [ $n -lt 75 ]; sleep 2; done; }

for role in leader helper; do
    port=$([ $role = leader ] && echo 19444 || echo 19445)
    hdpmf aggregator init $role --role $role --organisation $role --name localhost --port $port
done > /dev/null
hdpmf aggregator pair leader helper/card.json --same-host > /dev/null
hdpmf aggregator pair helper leader/card.json --same-host > /dev/null
seq 0 29 | sed 's/.*/&,Film &/; 1i item,title' > films.csv
hdpmf recommender init recommender --name shop --items films.csv --scale 1 5 --step 1 \
    --port 19443 > /dev/null
hdpmf recommender servers recommender leader/servers.json --same-host > /dev/null
for role in leader helper; do
    hdpmf aggregator admit $role recommender/collector-card.json > /dev/null
done

for user in $(seq 0 19); do
    for i in $(seq 0 9); do
        echo $user,$(((user + 3 * i) % 30)),$((1 + (user + i) % 5))
    done
done | sed '1i user,item,rating' > loans.csv
hdpmf device init school.sqlite --users 20 --name school --scale 1 5 > /dev/null
hdpmf device rate school.sqlite --from loans.csv > /dev/null
echo min_period = 10 > trial.toml
hdpmf device policy school.sqlite --set trial.toml > /dev/null
hdpmf recommender enroll recommender school.sqlite.card.json > /dev/null

for role in leader helper; do
    hdpmf aggregator serve $role 2> $role.log &
    services="$services $!"
done
hdpmf recommender serve recommender > recommender.log 2>&1 &
services="$services $!"
for port in 19444 19445 19443; do
    wait_for python -c "import socket; socket.create_connection(('localhost', $port), 5)"
done
hdpmf recommender run recommender --sums two-servers --period 60s --precision 5s --minimum 16
hdpmf device join school.sqlite https://localhost:19443 --ca recommender/tls/authority.pem \
    --servers leader/servers.json --same-host --every 2 > join.log 2>&1 &
services="$services $!"
wait_for sh -c 'ls recommender/runs/*/summary.json'
hdpmf aggregator status leader
wait_for hdpmf device recommend school.sqlite --user 0 -n 3
hdpmf device recommend school.sqlite --user 0 -n 3
kill $services
wait
echo "federation: done"
