import numpy as np
import pytest

from cnai.core.errors import DataError, SpecError
from cnai.schedule.demand import Demand
from cnai.schedule.traces import elasticflow, openb, philly, servegen
from cnai.schedule.traces.kinds import read_cluster, read_trace
from cnai.schedule.traces.synthetic import make_jobs, make_nodes

PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time\n"


@pytest.fixture
def table(tmp_path):
    def write(text, name="t.csv"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    return write


def test_jobs_lie_on_a_line_from_the_first_day(table):
    path = table(
        PHILLY
        + "2017-10-09 01:00:00,60.0,2,,a\n2017-10-08 23:00:00,60,1,,a\n2017-10-10 00:30:00,9,1,,b\n"
    )
    jobs = philly.read_jobs(path, start="2017-10-09", end="2017-10-10")
    assert [one.arrives for one in jobs] == [3600, 88_200]
    assert jobs[0].phases[0].row.workers == 2


def test_jobs_without_gpus_or_time_are_left_out(table):
    path = table(PHILLY + "2017-10-09,0,2,,a\n2017-10-09,5,0,,a\n2017-10-09,5,1,,a\n")
    assert len(philly.read_jobs(path)) == 1


def test_the_first_part_needs_no_gpu_where_it_is_released(table):
    path = table(PHILLY + "2017-10-09,100,2,,a\n")
    (one,) = philly.read_jobs(path, cpu_share=0.3, holds_gpus=False)
    assert [(phase.seconds, phase.row.demand.gpus) for phase in one.phases] == [(30, 0), (70, 1)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (PHILLY + "soon,1,1,,a\n", "`soon` is no date"),
        (PHILLY + "2017-10-09,x,1,,a\n", "`x` in column `duration`"),
        (PHILLY + "2017-10-09,nan,1,,a\n", "`nan` in column `duration`"),
        (PHILLY, "has no lines"),
        ("a,b\n1,2\n", "no value in column `timestamp`"),
        ("", "has no lines"),
    ],
)
def test_a_wrong_table_is_told_with_its_place(table, text, told):
    with pytest.raises(DataError, match=told) as error:
        philly.read_jobs(table(text))
    assert "t.csv" in error.value.where
    assert error.value.hint


def test_days_without_jobs_are_a_mistake(table):
    with pytest.raises(DataError, match="no job"):
        philly.read_jobs(table(PHILLY + "2017-10-09,1,1,,a\n"), start="2018-01-01")


def test_a_file_that_is_no_text_is_told(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(DataError, match="cannot read"):
        philly.read_jobs(path)


def test_pods_ask_for_shares_models_and_whole_gpus(table):
    path = table(PODS + "a,1000,10,1,460,,0,5\nb,1000,10,8,1000,V100M16|T4,0,5\nc,1,1,0,0,,0,5\n")
    share, whole, none = openb.read_pods(path)
    assert share == Demand(cpu_milli=1000, memory_mib=10, gpus=1, gpu_milli=460)
    assert (whole.models, whole.gpu_milli) == (("T4", "V100M16"), 1000)
    assert none.total_milli == 0


def test_a_table_without_times_or_models_is_read_too(table):
    path = table("name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,2,1000\n")
    assert openb.read_pods(path)[0].gpus == 2


def test_pods_come_until_they_ask_for_the_load():
    pods = [Demand(gpus=1), Demand(gpus=2)]
    coming = openb.arrivals(pods, 100_000, seed=1)
    asked = sum(pod.total_milli for pod in coming)
    assert 130_000 <= asked < 132_000
    assert coming == openb.arrivals(pods, 100_000, seed=1)
    assert coming != openb.arrivals(pods, 100_000, seed=2)


def test_pods_without_gpus_do_not_come_for_ever():
    assert len(openb.arrivals([Demand(cpu_milli=1)], 100_000, seed=1)) == 1


def test_curves_leave_out_sizes_that_cannot_run(table):
    folder = table("global_batch_size,1,2,4\n64,2.0,3.0,0\n128,1.0,,2.5\n", "curves/net.csv").parent
    curves = elasticflow.read_curves(folder)
    assert curves["net", 64].sizes == (1, 2)
    assert curves["net", 128].sizes == (1, 4)


def test_elastic_jobs_arrive_faster_and_take_what_their_curve_says(table):
    folder = table("global_batch_size,1,2\n64,2.0,4.0\n", "curves/net.csv").parent
    path = table("job_id,submit_time,model_name,batch_size,num_gpu,iteration\n0,100,net,64,2,400\n")
    (one,) = elasticflow.read_jobs(
        path, elasticflow.read_curves(folder), speedup=4, most=8, elastic=True
    )
    assert (one.arrives, one.phases[0].seconds) == (25, 100)


def test_a_job_without_a_curve_is_told(table):
    folder = table("global_batch_size,1\n64,2.0\n", "curves/net.csv").parent
    path = table("submit_time,model_name,batch_size,num_gpu,iteration\n1,other,64,2,400\n")
    with pytest.raises(DataError, match="no curve for `other`"):
        elasticflow.read_jobs(
            path, elasticflow.read_curves(folder), speedup=1, most=8, elastic=True
        )


def test_a_load_must_go_forward_in_time(table):
    with pytest.raises(DataError, match="comes after"):
        servegen.read_rates(table("t_s,req_per_s\n600,1\n0,1\n"))


def test_made_jobs_are_the_same_for_a_seed_and_fit_the_cluster():
    jobs = make_jobs(200, 16, seed=4)
    assert repr(jobs) == repr(make_jobs(200, 16, seed=4))
    assert repr(jobs) != repr(make_jobs(200, 16, seed=5))
    assert max(one.phases[0].row.workers for one in jobs) <= 16
    moments = [one.arrives for one in jobs]
    assert moments == sorted(moments)
    assert np.isfinite(moments).all()


@pytest.mark.parametrize(("words", "sizes"), [("12", [8, 4]), ("2x4", [4, 4]), ("3", [3])])
def test_a_cluster_is_told_in_words(words, sizes):
    assert [node.gpus for node in read_cluster(words)] == sizes


@pytest.mark.parametrize("words", ["big", "0", "0x8", "99999999", "-1", "8x"])
def test_words_that_are_no_cluster_are_a_mistake(words):
    with pytest.raises(SpecError) as error:
        read_cluster(words)
    assert error.value.where == "--cluster"


def test_the_kind_of_a_trace_is_told_by_its_head(table):
    assert len(read_trace(str(table(PHILLY + "2017-10-09,5,1,,a\n")), gpus=8)) == 1
    assert len(read_trace(str(table(PODS + "a,1,1,1,460,,0,5\n")), gpus=8)) == 1
    assert len(read_trace("synthetic:7", gpus=8)) == 7


@pytest.mark.parametrize("words", ["nothing.csv", "synthetic:0", "synthetic:x"])
def test_words_that_are_no_trace_are_a_mistake(words):
    with pytest.raises(SpecError):
        read_trace(words, gpus=8)


def test_a_table_of_no_known_kind_is_told_with_those_that_are(table):
    with pytest.raises(DataError, match="no known kind") as error:
        read_trace(str(table("a,b\n1,2\n")), gpus=8)
    assert "num_gpus" in error.value.hint


def test_elastic_traces_need_curves(table):
    path = table("submit_time,model_name,batch_size,num_gpu,iteration\n1,net,64,2,400\n")
    with pytest.raises(SpecError) as error:
        read_trace(str(path), gpus=8)
    assert error.value.where == "--curves"


def test_the_last_node_may_be_smaller():
    assert sum(node.gpus for node in make_nodes(20)) == 20
